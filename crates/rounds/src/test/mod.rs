//! Tools for your own tests: scripted clients of both eras, a clock that moves only when told, and recorded events.
//!
//! The client talks to the server over memory, in wire format, so it can send whatever a client can send, and what no
//! honest client would: replay, fork, tamper, answer with nonsense.
//!
//! ```
//! use rmcp::{ServerHandler, handler::server::router::tool::ToolRouter, tool, tool_handler, tool_router};
//! use rounds::{Ask, FlowError, Rounds, test::{Client, Events}};
//! use serde_json::json;
//!
//! struct Greeter { tool_router: ToolRouter<Self> }
//!
//! #[tool_router]
//! impl Greeter {
//!     #[tool(description = "Greets by name")]
//!     async fn greet(&self, ask: Ask) -> Result<String, FlowError> {
//!         let name: String = ask.form("What is your name?").key("name").await?;
//!         Ok(format!("Hello, {name}!"))
//!     }
//! }
//!
//! #[tool_handler(router = self.tool_router)]
//! impl ServerHandler for Greeter {}
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let events = Events::new();
//! let greeter = Greeter { tool_router: Greeter::tool_router() };
//! let server = Rounds::builder(greeter).observe(events.clone()).build().unwrap();
//! let client = Client::modern(server.clone()).await;
//!
//! let asked = client.call("greet", json!({})).await.asked();
//! assert_eq!(asked.message("name"), "What is your name?");
//! let answered = asked.accept("name", json!({"name": "Ada"}));
//! assert_eq!(answered.send(&client).await.text(), "Hello, Ada!");
//! assert_eq!(answered.send(&client).await.text(), "Hello, Ada!"); // a retry: the same reply
//! assert_eq!(events.runs("greet"), 1);                            // and no further run
//! asked.decline("name").send(&client).await.frozen();             // a fork: refused
//!
//! // A client of the legacy era is asked while its call is in flight. The test reads the same.
//! let client = Client::legacy(server).await;
//! let asked = client.call("greet", json!({})).await.asked();
//! assert_eq!(asked.question("name").message(), "What is your name?");
//! assert_eq!(asked.accept("name", json!({"name": "Ada"})).send(&client).await.text(), "Hello, Ada!");
//! # }
//! ```

mod client;
mod clock;
mod events;
#[doc(hidden)]
pub mod fuzz;
mod play;
mod question;
mod replay;
mod seal;

pub use client::{AskedRound, Client, InFlight, Leg, Pushed, Retry};
pub use clock::Clock;
pub use events::{Events, Recorded};
pub use play::{Played, accept, cancel, decline, play_in_both_eras};
pub use question::AskedQuestion;
pub use replay::{Replayed, journal, replay};
#[doc(hidden)]
pub use seal::Seal;
