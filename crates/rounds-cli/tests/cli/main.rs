//! `rounds` as its users run it: processes, sockets, pipes, files and exit codes.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod call;
mod call_bad;
mod call_http;
mod desk;
mod help;
mod invariant;
mod keys;
mod legacy;
mod linear;
mod list;
mod metrics;
mod process;
mod progress;
mod raw;
mod request;
mod resume;
mod screen;
mod serve_http;
mod serve_stdio;
mod settings;
mod stop;
mod tasks;
mod terminal;
mod terminal_legacy;
mod tour;
mod wire;
