//! For tests of your own: scripted clients of both eras, a clock that moves when told, and recorded events.
//!
//! The client talks to the server over memory, in the words of the wire, so it can say whatever a client can say, and
//! what no honest one would: replay, fork, tamper, answer with nonsense.
//!
//! ```
//! use rmcp::{ServerHandler, handler::server::router::tool::ToolRouter, tool, tool_handler, tool_router};
//! use rounds::{FlowError, Given, Round, Rounds, text, test::{Client, Events}};
//! use serde_json::json;
//!
//! struct Greeter { tool_router: ToolRouter<Self> }
//!
//! #[tool_router]
//! impl Greeter {
//!     #[tool(description = "Greets by name")]
//!     async fn greet(&self, round: Round) -> Result<rmcp::model::CallToolResponse, FlowError> {
//!         match round.given::<String>("name") {
//!             Given::Accepted(name) => Ok(text(format!("Hello, {name}!"))),
//!             Given::Declined | Given::Cancelled => Ok(text("Hello, whoever you are!")),
//!             Given::Missing | Given::Invalid(_) => round.ask_form::<String>("name", "What is your name?"),
//!         }
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
//! let client = Client::modern(server).await;
//!
//! let asked = client.call("greet", json!({})).await.asked();
//! assert_eq!(asked.message("name"), "What is your name?");
//! let answered = asked.accept("name", json!({"name": "Ada"}));
//! assert_eq!(answered.send(&client).await.text(), "Hello, Ada!");
//! assert_eq!(answered.send(&client).await.text(), "Hello, Ada!"); // a retry: the same reply
//! assert_eq!(events.runs("greet"), 2);                            // and no further run
//! asked.decline("name").send(&client).await.frozen();             // a fork: refused
//! # }
//! ```

mod client;
mod clock;
mod events;

pub use client::{Asked, Client, InFlight, Leg, Pushed, Retry};
pub use clock::Clock;
pub use events::{Events, Recorded};
