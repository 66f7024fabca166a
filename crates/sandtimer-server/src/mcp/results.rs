//! What code has displayed, and the value of its last expression where that is no JSON: text for
//! the model, figures as images.

use sandtimer::model::Outcome;
use serde_json::{Map, Value};

use super::bounds::fit_str;
use super::plain::plain;

/// Images that models take, the preferred first.
const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/// Texts that models read, the preferred first.
const READABLE_TYPES: [&str; 3] = ["text/markdown", "text/plain", "text/latex"];
/// The interpreter's notice on a result that it left out.
const NOTICE_TYPE: &str = "application/vnd.sandtimer.notice";
/// Images of an answer, and bytes of all of them as base64.
const MAX_IMAGES: usize = 4;
const MAX_IMAGE_BYTES: usize = 1 << 20;

/// An image of an answer, as base64.
#[derive(Debug)]
pub(super) struct ResultImage {
    pub data: String,
    pub mime_type: &'static str,
}

/// Results as they are answered.
#[derive(Debug, Default)]
pub(super) struct Results {
    pub text: String,
    pub structured: Vec<Value>,
    pub images: Vec<ResultImage>,
    pub is_cut: bool,
}

/// The results of a run, with at most `most` bytes of text. A value that is JSON is not among them.
pub(super) fn of(outcome: &Outcome, most: usize) -> Results {
    let is_value = |value: &Option<Value>| value.as_ref().is_some_and(|value| !value.is_null());
    let displayed = match outcome.results.split_last() {
        Some((_, before)) if is_value(&outcome.value) => before,
        _ => &outcome.results[..],
    };
    let mut results = Results::default();
    for (index, bundle) in displayed.iter().enumerate() {
        if results.text.len() >= most {
            results.is_cut = true;
            let more = displayed.len() - index;
            results.text += &format!(
                "\n[{more} more results are left out; the resource sandtimer://runs/{} has them]",
                outcome.run_id
            );
            break;
        }
        results.add(bundle, most);
    }
    results
}

impl Results {
    fn add(&mut self, bundle: &Value, most: usize) {
        let Value::Object(bundle) = bundle else { return };
        let mut shown = Map::new();
        let mut lines = Vec::new();
        if let Some((kind, text)) =
            READABLE_TYPES.iter().find_map(|kind| Some((*kind, bundle.get(*kind)?.as_str()?)))
        {
            let text = plain(text.as_bytes());
            let fitting = fit_str(&text, most.saturating_sub(self.text.len()));
            self.is_cut |= fitting != text;
            shown.insert(kind.to_owned(), fitting.clone().into());
            lines.push(fitting);
        }
        if let Some((kind, data)) =
            IMAGE_TYPES.iter().find_map(|kind| Some((*kind, bundle.get(*kind)?.as_str()?)))
        {
            let summary = self.add_image(kind, data);
            shown.insert(kind.to_owned(), summary.clone().into());
            lines.push(format!("[{summary}]"));
        }
        if let Some(notice) = bundle.get(NOTICE_TYPE).and_then(Value::as_str) {
            let notice = fit_str(notice, 500);
            shown.insert(NOTICE_TYPE.to_owned(), notice.clone().into());
            lines.push(format!("[{notice}]"));
        }
        if lines.is_empty() {
            let kinds: Vec<&str> = bundle.keys().map(String::as_str).collect();
            lines.push(fit_str(&format!("[a result without text: {}]", kinds.join(", ")), 500));
            shown.insert("text/plain".to_owned(), lines[0].clone().into());
        }
        self.text += &format!("\n{}\n", lines.join("\n"));
        self.structured.push(shown.into());
    }

    /// Adds an image, if it fits. Returns the text about it.
    fn add_image(&mut self, kind: &'static str, data: &str) -> String {
        let bytes: usize = self.images.iter().map(|image| image.data.len()).sum();
        if self.images.len() >= MAX_IMAGES || bytes + data.len() > MAX_IMAGE_BYTES {
            self.is_cut = true;
            return format!(
                "{kind} of {} bytes as base64 is left out: an answer has at most {MAX_IMAGES} images of {MAX_IMAGE_BYTES} bytes in all; make it smaller, or \
                 save it to a file in /workspace",
                data.len()
            );
        }
        // Interpreters break base64 into lines.
        let data: String = data.split_ascii_whitespace().collect();
        self.images.push(ResultImage { data, mime_type: kind });
        format!("{kind}: image {} of this answer", self.images.len())
    }
}

#[cfg(test)]
mod tests {
    use sandtimer::model::Ending;
    use sandtimer_records::bare_outcome;
    use serde_json::json;

    use super::*;

    fn shown(results: Value, value: Option<Value>, most: usize) -> Results {
        let results = results.as_array().cloned().unwrap_or_default();
        let outcome = bare_outcome("r", Ending::Returned, Value::Null, "a test");
        of(&Outcome { results, value, ..outcome }, most)
    }

    #[test]
    fn figures_become_images_and_tables_become_strings() {
        let figure = json!({"text/plain": "<Figure>", "image/png": "aGVs\nbG8=", "text/html": "<img>"});
        let table = json!({"text/plain": "   a\n0  1", "text/html": "<table>"});
        let results = shown(json!([figure, table]), None, 1000);
        assert_eq!(results.text, "\n<Figure>\n[image/png: image 1 of this answer]\n\n   a\n0  1\n");
        assert_eq!((results.images.len(), results.images[0].data.as_str()), (1, "aGVsbG8="));
        assert_eq!(results.structured[1], json!({"text/plain": "   a\n0  1"}));
        assert!(!results.is_cut);
        let html = shown(json!([{"text/html": "<b>"}]), None, 1000);
        assert!(html.text.contains("text/html"), "{}", html.text);
    }

    #[test]
    fn json_values_are_not_shown_twice() {
        let both = json!([{"text/plain": "shown"}, {"text/plain": "4", "application/json": 4}]);
        assert_eq!(shown(both.clone(), Some(json!(4)), 1000).text, "\nshown\n");
        assert_eq!(shown(both, None, 1000).structured.len(), 2);
    }

    #[test]
    fn results_are_bounded() {
        let large = json!({"image/png": "x".repeat(MAX_IMAGE_BYTES + 1)});
        let many: Vec<Value> = (0..6).map(|_| json!({"image/png": "AAAA"})).chain([large]).collect();
        let results = shown(many.into(), None, 10_000);
        assert!(results.images.len() == MAX_IMAGES && results.is_cut, "{results:?}");
        let texts: Vec<Value> = (0..100).map(|_| json!({"text/plain": "x".repeat(1000)})).collect();
        let results = shown(texts.into(), None, 5000);
        assert!(
            results.text.len() < 6000 && results.text.contains("more results are left out"),
            "{}",
            results.text
        );
    }
}
