//! The frames at the end of code that is executed: its results, and how it ended.

use sandtimer::model::{Ending, Outcome};
use serde_json::{Map, Value, json};

use super::outcome::note;

/// What the package calls the kinds of results.
const RESULT_KINDS: [(&str, &str); 9] = [
    ("text/plain", "text"),
    ("text/html", "html"),
    ("image/png", "png"),
    ("image/jpeg", "jpeg"),
    ("image/svg+xml", "svg"),
    ("text/latex", "latex"),
    ("text/markdown", "markdown"),
    ("application/javascript", "javascript"),
    ("application/vnd.dataresource+json", "data"),
];

/// The frames at the end of a cell: its results, and how it ended.
pub(super) fn end(outcome: &Outcome) -> Vec<Value> {
    let mut frames: Vec<Value> = outcome.results.iter().filter_map(result).collect();
    frames.push(match failed(outcome) {
        Some(error) => error,
        None => json!({"type": "execution_complete", "execution_count": outcome.execution_count}),
    });
    frames
}

/// A result by the names of the package, which knows `json` for what is more than its text says.
fn result(bundle: &Value) -> Option<Value> {
    let bundle = bundle.as_object()?;
    let mut event =
        Map::from_iter([("type".to_owned(), json!("result")), ("metadata".to_owned(), json!({}))]);
    for (kind, name) in RESULT_KINDS {
        if let Some(data) = bundle.get(kind) {
            event.insert(name.to_owned(), data.clone());
        }
    }
    let json = bundle.get("application/json").filter(|json| json.is_object() || json.is_array());
    if let Some(json) = json {
        event.insert("json".to_owned(), json.clone());
    }
    if let Some(Value::Object(mut chart)) = chart(bundle) {
        chart.retain(|_, value| !value.is_null());
        event.insert("chart".to_owned(), chart.into());
    }
    Some(Value::Object(event))
}

/// The data that a plotting library gives of its chart, by the names of the package.
fn chart(bundle: &Map<String, Value>) -> Option<Value> {
    if let Some(figure) = bundle.get("application/vnd.plotly.v1+json") {
        let (first, title) = (&figure["data"][0], &figure["layout"]["title"]);
        let kind = match (first["type"].as_str(), first["mode"].as_str()) {
            (None | Some("scatter"), Some(mode)) if mode.contains("lines") => "line",
            // The default.
            (None, _) => "scatter",
            (Some(kind @ ("bar" | "scatter" | "pie" | "histogram" | "heatmap")), _) => kind,
            _ => "unknown",
        };
        let title = title.get("text").unwrap_or(title);
        return Some(json!({
            "type": kind, "title": title.as_str(), "data": figure["data"], "layout": figure["layout"],
            "config": figure["config"], "library": "plotly",
        }));
    }
    let (_, figure) = bundle.iter().find(|(kind, _)| kind.starts_with("application/vnd.vegalite."))?;
    let (mark, title) = (&figure["mark"], &figure["title"]);
    let kind = match mark.get("type").unwrap_or(mark).as_str() {
        Some(kind @ ("line" | "bar")) => kind,
        Some("point" | "circle" | "square") => "scatter",
        Some("arc") => "pie",
        Some("rect") => "heatmap",
        _ => "unknown",
    };
    let title = title.get("text").unwrap_or(title).as_str();
    Some(json!({"type": kind, "title": title, "data": figure, "library": "altair"}))
}

/// What went wrong: an exception of the code, or what ended it.
fn failed(outcome: &Outcome) -> Option<Value> {
    if outcome.ending == Ending::Returned {
        return None;
    }
    let error = outcome.error.as_ref();
    let error_field = |key: &str| error.and_then(|error| error[key].as_str()).map(str::to_owned);
    let (name, message) = match (outcome.ending, note(outcome)) {
        (Ending::Raised, _) => (error_field("type"), error_field("message")),
        (Ending::Timeout | Ending::Stalled, Some(note)) => {
            let note = note.replacen("Command timeout", "Execution timeout", 1);
            (Some("TimeoutError".to_owned()), Some(note))
        }
        (Ending::OutOfMemory, note) => (Some("MemoryError".to_owned()), note),
        (_, Some(note)) => (Some("ExecutionEnded".to_owned()), Some(note)),
        (_, None) => {
            let how = match (outcome.exit_code, &outcome.signal) {
                (Some(code), _) => format!("by exit code {code}"),
                (_, Some(signal)) => format!("by {signal}"),
                _ => "without an answer".to_owned(),
            };
            (Some("InterpreterExited".to_owned()), Some(format!("the code ended its interpreter {how}")))
        }
    };
    let traceback: Vec<String> =
        error_field("traceback").unwrap_or_default().lines().map(str::to_owned).collect();
    Some(json!({
        "type": "error",
        "ename": name.unwrap_or_else(|| "Error".to_owned()),
        "evalue": message.unwrap_or_default(),
        "traceback": traceback,
        "state": outcome.state,
        "verdict": outcome.verdict,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charts_of_known_libraries_have_package_names() {
        let render_chart =
            |kind: &str, figure: Value| result(&json!({"text/plain": "a chart", kind: figure}));
        let plotly = "application/vnd.plotly.v1+json";
        for (trace, kind) in [
            (json!({"type": "bar", "y": [1, 2]}), "bar"),
            (json!({"type": "scatter", "mode": "lines+markers"}), "line"),
            (json!({"mode": "lines"}), "line"),
            (json!({"y": [1]}), "scatter"),
            (json!({"type": "sankey"}), "unknown"),
        ] {
            let figure = json!({"data": [trace], "layout": {"title": {"text": "Sales"}}, "config": {"a": 1}});
            let shown = render_chart(plotly, figure.clone()).expect("a result");
            let chart = &shown["chart"];
            assert_eq!(
                (&chart["type"], &chart["title"], &chart["library"]),
                (&json!(kind), &json!("Sales"), &json!("plotly"))
            );
            assert_eq!(
                (&chart["data"], &chart["layout"], &chart["config"]),
                (&figure["data"], &figure["layout"], &figure["config"])
            );
        }
        for (mark, kind) in
            [(json!("point"), "scatter"), (json!({"type": "bar"}), "bar"), (json!(null), "unknown")]
        {
            let figure = json!({"mark": mark, "title": "Sales", "encoding": {}});
            let shown = render_chart("application/vnd.vegalite.v5+json", figure.clone()).expect("a result");
            let wanted = json!({"type": kind, "title": "Sales", "data": figure, "library": "altair"});
            assert_eq!((&shown["chart"], &shown["text"]), (&wanted, &json!("a chart")));
        }
        assert_eq!(render_chart("text/html", json!("<b>")).expect("a result").get("chart"), None);
    }
}
