//! Code that both halves need: time, kinds of questions, form checking, the order of fields, and escaping of untrusted
//! text.

pub(crate) mod check;
pub(crate) mod clock;
pub(crate) mod escape;
mod iso;
pub(crate) mod kind;
pub mod order;
pub(crate) mod wire;
