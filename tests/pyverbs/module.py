"""Runs one module of rdma-core's conformance suite and prints one line per test, for a program to read.

    module.py TESTS_DIR MODULE [TEST..]

TESTS_DIR holds the suite, unpacked. Each test gives "begin ID", and at its end "end ID OUTCOME REASON"; fields are
parted by tabs. What the tests print themselves goes wherever it goes, so the lines carry a mark of their own.
"""

import importlib
import importlib.util
import os
import sys
import unittest

MARK = "@@adverb"


def say(*fields):
    print(MARK, *(str(field).replace("\t", " ").replace("\n", " | ") for field in fields), sep="\t", flush=True)


class Lines(unittest.TestResult):
    """Tells each outcome at once, so that what ran last is known when the process dies."""

    def startTest(self, test):
        super().startTest(test)
        self.told = False
        say("begin", self.name(test))

    def stopTest(self, test):
        if not self.told:
            self.tell(test, "fail", "the test ended without an outcome")
        super().stopTest(test)

    @staticmethod
    def name(test):
        return test.id().removeprefix("tests.")

    def tell(self, test, outcome, reason=""):
        self.told = True
        say("end", self.name(test), outcome, reason)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.tell(test, "pass")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.tell(test, "skip", reason)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.tell(test, "fail", self.failures[-1][1])

    def addError(self, test, err):
        super().addError(test, err)
        self.tell(test, "fail", self.errors[-1][1])

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.tell(test, "fail", f"{subtest}: {err[1]}")

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)
        self.tell(test, "pass")

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.tell(test, "fail", "an unexpected success")


def cases(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from cases(item)
        else:
            yield item


def main():
    directory, module, only = sys.argv[1], sys.argv[2], set(sys.argv[3:])
    sys.argv[1:] = []
    sys.path.insert(0, directory)
    # The suite's own parser of options sets what the tests ask for.
    from args_parser import parser

    parser.parse_args()
    # Not by executing the package's __init__: that would load every module for the sake of one.
    spec = importlib.machinery.ModuleSpec("tests", None, is_package=True)
    spec.submodule_search_locations = [directory]
    sys.modules["tests"] = importlib.util.module_from_spec(spec)
    # The helpers import each other; this is the end of the knot from which it unties.
    importlib.import_module("tests.utils")
    loaded = importlib.import_module(f"tests.{module}")
    suite = unittest.TestSuite(
        case
        for case in cases(unittest.TestLoader().loadTestsFromModule(loaded))
        if not only or Lines.name(case) in only
    )
    for case in suite:
        say("has", Lines.name(case))
    suite.run(Lines())
    say("done", module)
    sys.stdout.flush()
    # Threads of a failed test may still wait for something; they are nobody's business now.
    os._exit(0)


if __name__ == "__main__":
    main()
