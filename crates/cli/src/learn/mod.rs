//! The programs of the book (docs/book): one file per chapter, each a whole program that the book shows by its
//! anchors and `adverb learn` runs. They print to stdout and stderr as any program would.

mod asynchronous;
mod card;
mod choosing;
mod debugging;
mod events;
mod hybrid;
mod loops;
mod meanwhile;
mod objects;
mod posting;
mod spinning;
mod states;
mod threads;

use std::error::Error;

/// A chapter and its program.
pub(crate) struct Lesson {
    /// The name of its files: the chapter, the program here, the same in C, and what it prints.
    pub(crate) name: &'static str,
    /// The chapter's heading.
    pub(crate) title: &'static str,
    pub(crate) main: fn() -> Result<(), Box<dyn Error>>,
}

/// In the order of the book; the first is chapter 1.
pub(crate) const LESSONS: &[Lesson] = &[
    Lesson {
        name: "asynchronous",
        title: "Everything is asynchronous",
        main: asynchronous::main,
    },
    Lesson {
        name: "objects",
        title: "PD, MR, CQ, QP",
        main: objects::main,
    },
    Lesson {
        name: "states",
        title: "From RESET to RTS",
        main: states::main,
    },
    Lesson {
        name: "posting",
        title: "Posting: requests, pieces, signals",
        main: posting::main,
    },
    Lesson {
        name: "spinning",
        title: "Spinning on a completion queue",
        main: spinning::main,
    },
    Lesson {
        name: "meanwhile",
        title: "Doing other work meanwhile",
        main: meanwhile::main,
    },
    Lesson {
        name: "events",
        title: "Events: arm, look again, sleep",
        main: events::main,
    },
    Lesson {
        name: "threads",
        title: "Two threads and a stolen completion",
        main: threads::main,
    },
    Lesson {
        name: "loops",
        title: "Event loops: O_NONBLOCK, epoll, async",
        main: loops::main,
    },
    Lesson {
        name: "hybrid",
        title: "The hybrid and its curves",
        main: hybrid::main,
    },
    Lesson {
        name: "choosing",
        title: "Choosing by workload",
        main: choosing::main,
    },
    Lesson {
        name: "card",
        title: "From here to a real card",
        main: card::main,
    },
    Lesson {
        name: "debugging",
        title: "Debugging",
        main: debugging::main,
    },
];

/// The lesson of this number, from 1, or of this name.
pub(crate) fn find(wanted: &str) -> Option<&'static Lesson> {
    match wanted.parse::<usize>() {
        Ok(number) => LESSONS.get(number.checked_sub(1)?),
        Err(_) => LESSONS.iter().find(|lesson| lesson.name == wanted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lessons_are_found_by_number_and_by_name() {
        for (at, lesson) in LESSONS.iter().enumerate() {
            for wanted in [&(at + 1).to_string(), lesson.name] {
                assert_eq!(find(wanted).map(|found| found.name), Some(lesson.name));
            }
        }
        for wanted in ["0", "-1", "99", "", "State"] {
            assert!(find(wanted).is_none(), "{wanted}");
        }
    }
}
