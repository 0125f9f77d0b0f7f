//! The other side: a multi-round call as a value, and whoever answers its questions.

mod answer;
mod call;
mod drive;
mod error;
mod field;
mod host;
mod leg;
mod limits;
mod pending;
mod question;
mod ready;
mod reply;
mod responder;
mod saved;
mod server;

pub use answer::{Answer, AnswerError};
pub use call::{Call, Done, Sent};
pub use drive::{DriveError, Outcome, Progress, Start, Stopped, drive};
pub use error::{BadServer, SendError};
pub use field::{Choice, Field, FieldKind, TextFormat};
pub use host::Host;
pub use limits::Limits;
pub use pending::Pending;
pub use question::Question;
pub use ready::{
    Concurrently, DefaultsOnly, NotAnswered, Observed, Only, Scripted, Unavailable, concurrently, defaults_only,
    observed, only, scripted, unavailable,
};
pub use responder::{BoxError, Responder};
pub use saved::LoadError;
pub use server::{Origin, Server};
