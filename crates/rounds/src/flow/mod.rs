//! The engine: one leg of one flow. It knows no transport, no store and no clock; those are handed to it.

pub(crate) mod claim;
pub(crate) mod failure;
pub(crate) mod frame;
pub(crate) mod frames;
pub(crate) mod journal;
pub(crate) mod leg;
pub(crate) mod link;
pub(crate) mod once;
pub(crate) mod poll;
mod reply;
pub(crate) mod route;
mod stop;
pub(crate) mod view;
pub(crate) mod weight;
