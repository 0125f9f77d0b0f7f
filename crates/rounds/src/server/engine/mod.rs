//! The engine: one leg of one flow. It knows no transport, no store and no clock; those are handed to it.

pub(crate) mod admission;
pub(crate) mod answer;
mod claim;
pub(crate) mod core;
pub(crate) mod documents;
pub(crate) mod draining;
pub(crate) mod effects;
pub(crate) mod elsewhere;
pub(crate) mod exchange;
pub(crate) mod frame;
pub(crate) mod frames;
pub(crate) mod gauges;
pub(crate) mod handlers;
pub(crate) mod journal;
pub(crate) mod leg;
pub(crate) mod legacy;
pub(crate) mod link;
pub(crate) mod measured;
mod poll;
mod records;
pub(crate) mod register;
pub(crate) mod relay;
mod reply;
pub(crate) mod route;
mod stand_in;
mod stop;
pub(crate) mod task;
pub(crate) mod texts;
pub(crate) mod view;
pub(crate) mod weight;

#[cfg(feature = "test")]
pub(crate) use reply::fuzz as fuzz_reply;
