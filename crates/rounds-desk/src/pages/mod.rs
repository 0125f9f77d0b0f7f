//! The pages, one module each, and the frame around them.

pub(crate) mod flow;
pub(crate) mod journal;
mod legs;
pub(crate) mod question;
pub(crate) mod timeline;
pub(crate) mod tries;
pub(crate) mod waiting;

use maud::{DOCTYPE, Markup, html};
use rounds::register::FlowStatus;

use crate::{content::Text, service::Visit};

/// The frame of a page: its title, and what it shows around its body.
pub(crate) struct Page<'a> {
    title: &'a str,
    /// The path of the navigation that it belongs to.
    tab: &'static str,
    /// The path of the events that it reloads for.
    events: Option<String>,
    /// Whether it is reloaded by a browser without scripts, too.
    reloads: bool,
    /// Whether it shows nothing of the server.
    plain: bool,
}

impl<'a> Page<'a> {
    pub(crate) fn new(title: &'a str) -> Self {
        Self { title, tab: "", events: None, reloads: false, plain: false }
    }

    pub(crate) fn tab(mut self, tab: &'static str) -> Self {
        self.tab = tab;
        self
    }

    /// The page is loaded again, in the background, at each event of this stream.
    pub(crate) fn events(mut self, path: String) -> Self {
        self.events = Some(path);
        self
    }

    /// The page waits for something that ends soon.
    pub(crate) fn reloads(mut self, reloads: bool) -> Self {
        self.reloads = reloads;
        self
    }

    pub(crate) fn plain(mut self, plain: bool) -> Self {
        self.plain = plain;
        self
    }

    pub(crate) fn render(self, visit: Visit<'_>, body: Markup) -> Markup {
        let name = if self.plain { String::new() } else { visit.shared.served.name() };
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    @if self.reloads { meta http-equiv="refresh" content="1"; }
                    title { (Text(self.title)) " · desk" @if !name.is_empty() { " of " (Text(&name)) } }
                    link rel="icon" type="image/svg+xml" href=(visit.link("/assets/icon.svg"));
                    link rel="stylesheet" href=(visit.link("/assets/desk.css"));
                    script src=(visit.link("/assets/desk.js")) defer {}
                }
                body data-events=[self.events.as_deref().map(|path| visit.link(path))] {
                    a .skip href="#main" { "Skip to the content" }
                    header .top {
                        (self.bar(visit, &name))
                    }
                    main #main tabindex="-1" { (body) }
                    footer { p { "rounds " (env!("CARGO_PKG_VERSION")) } p .live #live role="status" {} }
                }
            }
        }
    }

    fn bar(&self, visit: Visit<'_>, name: &str) -> Markup {
        let tab = |path: &'static str, label: &str| {
            let current = (self.tab == path).then_some("page");
            html! { a href=(visit.link(path)) aria-current=[current] { (label) } }
        };
        html! {
            p .brand { span .mark aria-hidden="true" {} "desk" @if !name.is_empty() { span .of { (Text(name)) } } }
            @if !self.plain {
                nav aria-label="Pages" {
                    (tab("/", "Waiting"))
                    @if visit.shared.calls.is_some() { (tab("/try", "Try it")) }
                }
                @if let Some(principal) = visit.visitor().principal() {
                    p .who { "Signed in as " strong { (Text(principal.as_str())) } }
                }
            }
        }
    }
}

/// The status of a flow as a label. The word says it; the colour only repeats it.
pub(crate) fn status(status: FlowStatus) -> Markup {
    html! { span class={ "status " (status.as_str()) } { (status.as_str()) } }
}

/// A number with its thousands apart.
pub(crate) fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A name and its value in a list of facts.
pub(crate) fn fact(name: &str, value: Markup) -> Markup {
    html! { div { dt { (name) } dd { (value) } } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_have_their_thousands_apart() {
        for (value, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (100_000, "100,000"), (12_345_678, "12,345,678")]
        {
            assert_eq!(number(value), text);
        }
    }
}
