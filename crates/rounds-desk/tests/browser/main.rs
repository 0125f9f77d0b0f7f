//! The desk in a real Chromium, used as a person would. `cargo xtask chromium` installs what it needs.
#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod axe;
mod chromium;
mod looks;
mod person;
mod served;
