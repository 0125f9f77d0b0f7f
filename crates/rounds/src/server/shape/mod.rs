//! The ways to write a handler: the types that authors import.

mod ask;
mod asked;
mod by_era;
mod durable;
mod inquiry;
mod posed;
mod prompt;
mod round;
mod steps;

pub use ask::{Answer, Ask, QuestionBuilder};
pub use asked::{AnyServer, AsServer, Asked, AskedBy, FixedQuestion, Question, QuestionInput, QuestionSet};
pub use by_era::by_era;
pub use durable::{Arguments, Durable, Together, durable, durable_prompt, durable_tool};
pub use posed::DeclaredQuestion;
pub(crate) use posed::SettledQuestion;
pub use prompt::PromptResponse;
pub use round::{Given, Questions, Round};
pub use steps::{Append, Collected, Finished, Refused, Step, StepValue, Steps, StepsError};
