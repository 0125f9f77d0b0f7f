//! The desk, through its service: what pages show, who may see and do what, and what an attacker cannot.
#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod actions;
mod attack;
mod flow;
mod injection;
mod live;
mod many;
mod permissions;
mod question;
mod stage;
mod trying;
mod waiting;
