//! The report as one page: no scripts, no network, nothing beside it.

use std::fmt::Write as _;

use super::text::{COLUMNS, LEGEND, about, time, warnings};
use super::{Cell, Comparison, plot};

/// The page of a comparison.
pub(crate) fn page(result: &Comparison) -> String {
    let mut html = String::new();
    let mut put =
        |text: std::fmt::Arguments<'_>| html.write_fmt(text).expect("a string takes everything");
    put(format_args!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n\
         <title>How to wait on this machine</title>\n<style>{}</style>\n</head>\n<body>\n\
         <a class=\"skip\" href=\"#shapes\">To the figures</a>\n<header>\n<h1>How to wait on this machine</h1>\n",
        include_str!("page.css")
    ));
    put(format_args!(
        "<p>{}, two processes, request and reply of 32 bytes; {}.</p>\n</header>\n<main>\n",
        escape(&result.device),
        escape(&about(&result.machine))
    ));
    for warning in warnings(result) {
        put(format_args!(
            "<p class=\"warning\" role=\"note\">{}</p>\n",
            escape(&warning)
        ));
    }
    put(format_args!("{}", machine(result)));
    put(format_args!(
        "<section aria-labelledby=\"what\"><h2 id=\"what\">What to take</h2>\n<dl class=\"advice\">\n"
    ));
    for advice in &result.advice {
        put(format_args!(
            "<dt><a href=\"#shape-{0}\">{0}</a></dt><dd><strong>{1}</strong>: {2}.</dd>\n",
            escape(&advice.shape),
            escape(&advice.model),
            escape(&advice.why)
        ));
    }
    put(format_args!(
        "</dl></section>\n<section aria-labelledby=\"shapes\"><h2 id=\"shapes\" tabindex=\"-1\">Shape by shape</h2>\n"
    ));
    put(format_args!("{}", ways(result)));
    for (number, (shape, meaning)) in result.shapes.iter().enumerate() {
        let cells: Vec<_> = result
            .cells
            .iter()
            .filter(|cell| cell.shape == *shape)
            .collect();
        let (shape, meaning) = (escape(shape), escape(meaning));
        put(format_args!(
            "<article aria-labelledby=\"shape-{shape}\"><h3 id=\"shape-{shape}\" tabindex=\"-1\">{shape}</h3>\n<p>{meaning}</p>\n\
             <div class=\"plots\"><figure>{}<figcaption>Mean latency against CPU; down and left is better. The line joins what no other \
             way beats in both.</figcaption></figure>\n<figure>{}<figcaption>How long requests took, with marks at 50 % and 99 %.</figcaption></figure></div>\n{}</article>\n",
            plot::pareto(&cells, &shape, &format!("p{number}")),
            plot::distributions(&cells, &shape, &format!("d{number}")),
            table(&cells, &shape)
        ));
    }
    put(format_args!(
        "</section>\n<section aria-labelledby=\"how\"><h2 id=\"how\">How this was measured</h2>\n<ul>\n"
    ));
    for line in LEGEND.iter().take(LEGEND.len() - 1) {
        put(format_args!("<li>{}</li>\n", escape(line)));
    }
    put(format_args!(
        "<li>{} rounds; in each of them every cell comes once, so that a disturbance hits several of them rather than all of one</li>\n\
         </ul>\n<p>The same again:</p>\n<pre tabindex=\"0\"><code>{}</code></pre>\n</section>\n</main>\n\
         <footer><p>adverb {}</p></footer>\n</body>\n</html>\n",
        result.rounds,
        escape(&result.command),
        escape(result.machine.version)
    ));
    html
}

fn machine(result: &Comparison) -> String {
    let stalls = &result.stalls;
    let facts = [
        ("a wake-up (W)", time(result.machine.wakeup_ns)),
        ("a hop between the two cores", time(result.machine.hop_ns)),
        ("one reading of the clock", time(result.machine.clock_ns)),
        (
            "stalls of 10 us and more",
            format!("{:.1} a second", stalls.per_second_10us),
        ),
        (
            "stalls of 1 ms and more",
            format!("{:.2} a second", stalls.per_second_1ms),
        ),
        ("the longest stall", time(stalls.longest_ns)),
        (
            "stalls together",
            format!("{:.2} % of the time", stalls.percent),
        ),
        (
            "other programs",
            result.others_cpu_percent.map_or_else(
                || "not known".to_owned(),
                |percent| format!("{percent:.0} % of a core"),
            ),
        ),
    ];
    let mut html = "<section aria-labelledby=\"machine\"><h2 id=\"machine\">The machine</h2>\n<dl class=\"facts\">\n".to_owned();
    for (name, value) in facts {
        html += &format!("<div><dt>{name}</dt><dd>{value}</dd></div>\n");
    }
    html + "</dl></section>\n"
}

fn ways(result: &Comparison) -> String {
    let mut html = "<dl class=\"ways\">\n".to_owned();
    for (number, (way, meaning)) in result.ways.iter().enumerate() {
        html += &format!(
            "<div><dt>{} {}</dt><dd>{}</dd></div>\n",
            plot::key(number),
            escape(way),
            escape(meaning)
        );
    }
    html + "</dl>\n"
}

/// The table can be scrolled by itself where the screen is narrow, also by keyboard.
fn table(cells: &[&Cell], shape: &str) -> String {
    let mut html = format!(
        "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"Figures of {shape}\"><table><caption>{shape}</caption><thead><tr><th scope=\"col\">way to wait</th>"
    );
    for (column, _, _) in &COLUMNS {
        html += &format!("<th scope=\"col\">{column}</th>");
    }
    html += "</tr></thead><tbody>\n";
    for (number, cell) in cells.iter().enumerate() {
        html += &format!(
            "<tr><th scope=\"row\">{} {}</th>",
            plot::key(number),
            escape(&cell.model)
        );
        for (_, _, show) in &COLUMNS {
            html += &format!("<td>{}</td>", escape(&show(cell)));
        }
        html += "</tr>\n";
    }
    html + "</tbody></table></div>\n"
}

fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_become_markup() {
        assert_eq!(escape("<b a=\"x\">&"), "&lt;b a=&quot;x&quot;&gt;&amp;");
    }
}
