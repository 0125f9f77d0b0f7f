//! Guides: how to write, test, deploy and secure a server that asks, and how it works inside.
//!
//! | page | answers |
//! |---|---|
//! | [`first_server`] | how to write a server that asks, run it and call it |
//! | [`examples`] | which complete program shows what, for which server and which client |
//! | [`moving`] | how a server that exists moves here, from one line on |
//! | [`choosing_a_shape`] | which of the five ways to write a handler fits |
//! | [`forms`] | what a question can ask for, and how answers are checked |
//! | [`elsewhere`] | how another person than the caller answers: approvals, forms, pages |
//! | [`tasks`] | how a call becomes a task, which the client polls |
//! | [`testing`] | how to test a handler without a network and without waiting |
//! | [`client`] | how to write the side that is asked |
//! | [`deploying`] | what one process, a fleet and short-lived workers need |
//! | [`register`] | which flows wait, and how to look at them and cancel them |
//! | [`desk`] | how to see in a browser what waits, and who may |
//! | [`stores`] | which store to take, what it contains and what it can lose |
//! | [`security`] | what holds by default, and what to set for several users |
//! | [`internals`] | how a handler waits, is replayed, and runs once for each answer |
//! | [`token`] | what `requestState` contains, byte by byte |
//! | [`performance`] | what it costs, with figures |
//! | [`interop`] | which other SDKs and test suites it was run against |
//! | [`command_line`] | the program `rounds` |
//!
//! The pages are Markdown files beside this module, so that they can be read on a code host too.

// Without every feature some examples do not compile: the pages are still there, and their examples do not run.
#![cfg(any(
    not(doctest),
    all(feature = "server", feature = "client", feature = "http", feature = "otel", feature = "test")
))]

/// Declares a page. `links.md` comes first because the first definition of a link counts: in rustdoc it leads to a module, and on a code
/// host, where only the page is read, to a file. Failing examples are therefore reported as lines of `links.md`: subtract its length.
macro_rules! page {
    ($name:ident, $file:literal) => {
        #[doc = include_str!("links.md")]
        #[doc = ""]
        #[doc = include_str!($file)]
        pub mod $name {}
    };
}

page!(first_server, "first_server.md");
page!(examples, "examples.md");
page!(moving, "moving.md");
page!(choosing_a_shape, "choosing_a_shape.md");
page!(forms, "forms.md");
page!(elsewhere, "elsewhere.md");
page!(tasks, "tasks.md");
page!(testing, "testing.md");
page!(client, "client.md");
page!(deploying, "deploying.md");
page!(register, "register.md");
page!(desk, "desk.md");
page!(stores, "stores.md");
page!(security, "security.md");
page!(internals, "internals.md");
page!(token, "token.md");
page!(performance, "performance.md");
page!(interop, "interop.md");
page!(command_line, "command_line.md");

#[cfg(test)]
mod tests {
    /// A page, and the file that has it.
    macro_rules! pages {
        ($($name:literal),+ $(,)?) => { [$(($name, include_str!(concat!($name, ".md")))),+] };
    }

    const PAGES: [(&str, &str); 19] = pages![
        "first_server",
        "examples",
        "moving",
        "choosing_a_shape",
        "forms",
        "tasks",
        "testing",
        "client",
        "deploying",
        "register",
        "desk",
        "elsewhere",
        "stores",
        "security",
        "internals",
        "token",
        "performance",
        "interop",
        "command_line",
    ];

    /// Where links of this style lead: `[text][page]`. Code blocks, every second part between fences, have none.
    fn linked(page: &str) -> impl Iterator<Item = &str> {
        let prose = page.split("```").step_by(2);
        prose.flat_map(|prose| prose.split("][").skip(1)).filter_map(|rest| Some(rest.split_once(']')?.0))
    }

    #[test]
    fn a_link_to_another_page_works_in_rustdoc_and_on_a_code_host() {
        let modules = include_str!("links.md");
        for (name, page) in PAGES {
            for link in linked(page) {
                assert!(
                    page.contains(&format!("\n[{link}]: {link}.md\n")),
                    "{name}: where is [{link}] on a code host?"
                );
                assert!(
                    modules.contains(&format!("[{link}]: crate::guide::{link}\n")),
                    "{name}: where is [{link}] in rustdoc?"
                );
            }
        }
    }

    #[test]
    fn no_page_shows_lines_that_only_rustdoc_hides() {
        for (name, page) in PAGES {
            let code = page.split("```rust").skip(1).filter_map(|rest| Some(rest.split_once("```")?.0));
            for line in code.flat_map(str::lines) {
                assert!(!line.starts_with("# ") && line != "#", "{name} shows `{line}` on a code host");
            }
        }
    }
}
