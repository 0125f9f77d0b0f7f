//! The ways to write a handler: what authors import.

mod ask;
mod asked;
mod by_era;
mod durable;
mod posed;
mod prompt;
mod round;
mod steps;

pub use ask::{Answer, Ask, Asking};
pub use asked::{Asked, FixedQuestion, Grounds, Question};
pub use by_era::by_era;
pub use durable::{Durable, Together, durable, durable_prompt};
pub use posed::Posed;
pub use prompt::PromptResponse;
pub use round::{Asks, Given, Round};
pub use steps::{Append, Collected, Finished, Refused, Step, StepValue, Steps, StepsError};
