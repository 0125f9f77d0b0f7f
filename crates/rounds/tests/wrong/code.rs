//! Handlers with mistakes of newcomers, which do not compile. `tests/wrong/main.rs` compiles one at a time, by the
//! `cfg` of its name, and checks the compiler's messages. Without such a `cfg` this file is empty.

#![allow(unexpected_cfgs, unused)]

use rmcp::{
    ServerHandler,
    handler::server::{router::tool::ToolRouter, wrapper::Parameters},
    schemars,
};
use rounds::{Ask, Durable, FlowError, durable};
use serde::Deserialize;

#[derive(Deserialize, schemars::JsonSchema)]
struct Trip {
    to: String,
}

struct Shop {
    prices: Vec<u32>,
}

impl Shop {
    async fn price(&self) -> u32 {
        1
    }
}

#[cfg(wrong = "self")]
mod wrong {
    use super::*;

    impl Shop {
        async fn book(&self, flow: Durable<Shop>, trip: Trip) -> Result<String, FlowError> {
            Ok(String::new())
        }
    }

    fn router() -> ToolRouter<Shop> {
        ToolRouter::new().with_route(durable("book", "Book a trip", Shop::book))
    }
}

#[cfg(wrong = "method")]
mod wrong {
    use rmcp::{tool, tool_router};

    use super::*;

    #[tool_router]
    impl Shop {
        #[tool(description = "Book a trip")]
        async fn book(&self, Parameters(trip): Parameters<Trip>, flow: Durable<Shop>) -> Result<String, FlowError> {
            Ok(String::new())
        }
    }

    #[test]
    fn method() {
        Shop::tool_router();
    }
}

#[cfg(wrong = "captures")]
mod wrong {
    use super::*;

    fn router(currency: &'static str) -> ToolRouter<Shop> {
        let book = move |_flow: Durable<Shop>, _trip: Trip| async move { Ok::<_, FlowError>(currency.to_owned()) };
        ToolRouter::new().with_route(durable("book", "Book a trip", book))
    }

    #[test]
    fn captures() {
        router("EUR");
    }
}

#[cfg(wrong = "outside")]
mod wrong {
    use super::*;

    async fn book(flow: Durable<Shop>, trip: Trip) -> Result<String, FlowError> {
        let price = flow.server.price().await;
        Ok(price.to_string())
    }
}

#[cfg(wrong = "form")]
mod wrong {
    use super::*;

    #[derive(Deserialize)]
    struct Seat {
        row: u8,
    }

    async fn book(flow: Durable<Shop>, trip: Trip) -> Result<String, FlowError> {
        let seat: Seat = flow.form("Which seat?").await?;
        Ok(seat.row.to_string())
    }
}

#[cfg(wrong = "arguments")]
mod wrong {
    use super::*;

    #[derive(Deserialize)]
    struct Bare {
        to: String,
    }

    async fn book(flow: Durable<Shop>, trip: Bare) -> Result<String, FlowError> {
        Ok(trip.to)
    }

    fn router() -> ToolRouter<Shop> {
        ToolRouter::new().with_route(durable("book", "Book a trip", book))
    }
}

#[cfg(wrong = "not_send")]
mod wrong {
    use super::*;

    async fn book(flow: Durable<Shop>, trip: Trip) -> Result<String, FlowError> {
        let shared = std::rc::Rc::new(trip.to);
        let sure = flow.confirm("Sure?").await?;
        Ok(format!("{shared} {sure}"))
    }

    fn router() -> ToolRouter<Shop> {
        ToolRouter::new().with_route(durable("book", "Book a trip", book))
    }
}

#[cfg(wrong = "no_question")]
mod wrong {
    use rmcp::{ErrorData, RoleServer, service::RequestContext};
    use rounds::Asked;

    use super::*;

    fn read(shop: &Shop, context: &RequestContext<RoleServer>) -> Result<String, ErrorData> {
        let Asked(trip) = Asked::<Trip>::from_context(shop, context)?;
        Ok(trip.to)
    }
}

#[cfg(wrong = "asked_without_a_question")]
mod wrong {
    use rmcp::{tool, tool_router};
    use rounds::Asked;

    use super::*;

    #[tool_router]
    impl Shop {
        #[tool(description = "Book a trip")]
        async fn book(&self, Asked(trip): Asked<Trip>) -> Result<String, FlowError> {
            Ok(trip.to)
        }
    }
}

#[cfg(wrong = "question_of_another_server")]
mod wrong {
    use rmcp::{ErrorData, RoleServer, service::RequestContext};
    use rounds::{
        Asked,
        asked::{DeclaredQuestion, Question},
    };

    use super::*;

    struct Bank;

    impl Question for Trip {
        type Server = Bank;
        type On = ();

        fn ask(_bank: &Bank, (): ()) -> Result<DeclaredQuestion<Self>, FlowError> {
            Ok(DeclaredQuestion::form("Where to?"))
        }
    }

    fn read(shop: &Shop, context: &RequestContext<RoleServer>) -> Result<String, ErrorData> {
        let Asked(trip) = Asked::<Trip>::from_context(shop, context)?;
        Ok(trip.to)
    }
}

#[cfg(wrong = "durable_in_a_router")]
mod wrong {
    use rmcp::{tool, tool_router};

    use super::*;

    #[tool_router]
    impl Shop {
        #[tool(description = "Book a trip")]
        async fn book(flow: Durable<Shop>, Parameters(trip): Parameters<Trip>) -> Result<String, FlowError> {
            Ok(String::new())
        }
    }

    #[test]
    fn routed() {
        Shop::tool_router();
    }
}

#[cfg(wrong = "durable_form_without_type")]
mod wrong {
    use super::*;

    async fn book(flow: Durable<Shop>, trip: Trip) -> Result<String, FlowError> {
        let seat = flow.form("Which seat?").await?;
        Ok(String::new())
    }
}

#[cfg(wrong = "no_step")]
mod wrong {
    use rounds::Steps;

    use super::*;

    fn steps() {
        let _ = Steps::<Shop, Trip>::new("book", "Book a trip").finish(async |_, ()| Ok("booked".to_owned()));
    }
}

#[cfg(wrong = "no_finish")]
mod wrong {
    use rounds::{Steps, asked::DeclaredQuestion};

    use super::*;

    fn steps() {
        let _ = Steps::<Shop, Trip>::new("book", "Book a trip")
            .step::<bool, _, _>("sure", async |_, ()| Ok(DeclaredQuestion::form("Sure?")))
            .build();
    }
}

#[cfg(wrong = "form_without_type")]
mod wrong {
    use super::*;

    async fn book(ask: Ask) -> Result<String, FlowError> {
        let seat = ask.form("Which seat?").await?;
        Ok(String::new())
    }
}

#[cfg(wrong = "ask_and_durable")]
mod wrong {
    use rmcp::{tool, tool_router};

    use super::*;

    #[tool_router]
    impl Shop {
        #[tool(description = "Book a trip")]
        async fn book(&self, ask: Ask, flow: Durable<Shop>) -> Result<String, FlowError> {
            Ok(String::new())
        }
    }

    #[test]
    fn both() {
        Shop::tool_router();
    }
}

#[cfg(wrong = "durable_and_ask")]
mod wrong {
    use super::*;

    async fn book(flow: Durable<Shop>, ask: Ask) -> Result<String, FlowError> {
        Ok(String::new())
    }

    fn router() -> ToolRouter<Shop> {
        ToolRouter::new().with_route(durable("book", "Book a trip", book))
    }
}

#[cfg(wrong = "router")]
mod wrong {
    use rmcp::handler::server::router::Router;
    use rounds::Rounds;

    use super::*;

    struct Handler;

    impl ServerHandler for Handler {}

    fn server(router: Router<Handler>) -> Rounds<Router<Handler>> {
        Rounds::new(router)
    }
}
