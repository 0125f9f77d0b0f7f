//! `rounds` as its users meet it: processes, sockets, pipes, files and exit codes.

#![expect(clippy::unwrap_used, reason = "what a test cannot do without is there, or the test fails")]

mod help;
mod invariant;
mod keys;
mod legacy;
mod linear;
mod process;
mod request;
mod serve_http;
mod serve_stdio;
mod stop;
mod tour;
mod wire;
