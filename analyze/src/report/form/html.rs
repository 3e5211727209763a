//! Renders one self-contained page, which makes no requests and is readable without scripts. The template
//! escapes text; control and bidirectional characters are replaced in the whole page.

use askama::Template;

use crate::report::document::{Block, Document};
use analyze_run::error::AnalyzeError;
use analyze_run::text;

/// Largest size in bytes of the data that the page includes for download.
const DATA_BYTES: usize = 1 << 20;

#[derive(Template)]
#[template(path = "report.html")]
struct Page<'a> {
    document: &'a Document,
    /// True if the page includes the data, which it does unless they exceed `DATA_BYTES`.
    has_data: bool,
}

/// Placeholder of the data in the rendered page. No text from a trace can contain it, because `<` is escaped.
const DATA: &str = "<!--data-->";

/// Escapes JSON for a script element: nothing in it ends the element or changes the direction of text.
fn inert(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in text::harmless(json).chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => text += &format!("\\u{:04x}", u32::from(c)),
            c => text.push(c),
        }
    }
    text
}

/// Renders the page, with the report's JSON embedded.
pub fn page(document: &Document, json: &str) -> Result<String, AnalyzeError> {
    let data = inert(json);
    let page = Page { document, has_data: data.len() <= DATA_BYTES };
    let html = page.render().map_err(|error| AnalyzeError::Internal(error.to_string()))?;
    let html = text::harmless(&html);
    Ok(if page.has_data { html.replacen(DATA, &data, 1) } else { html })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_cannot_leave_its_element() {
        let json = serde_json::to_string("</script><!--\u{202e}\u{2028}&").unwrap();
        let text = inert(&json);
        assert!(!text.contains(['<', '>', '&', '\u{202e}', '\u{2028}']), "{text}");
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), "</script><!--\u{202e}\u{2028}&");
    }
}
