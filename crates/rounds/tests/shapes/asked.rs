//! Declared questions: asked before the handler runs. The handler runs once, when all answers have arrived.

use rmcp::{
    ErrorData, RoleServer,
    handler::server::wrapper::Parameters,
    model::{CallToolResponse, PromptMessage, ReadResourceResponse, ReadResourceResult, ResourceContents, Role},
    prompt, prompt_router, schemars,
    service::RequestContext,
    tool, tool_router,
};
use rounds::{
    Answer, Ask, Asked, Era, FlowError, Given, Legacy, Round,
    asked::{DeclaredQuestion, FixedQuestion, Question},
    observe::Station,
    test::Client,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Shop, Stage, Units, accept};

#[derive(Debug, Deserialize, schemars::JsonSchema)]
struct Day {
    day: String,
}

impl FixedQuestion for Day {
    const MESSAGE: &'static str = "Which day?";
}

#[derive(Debug, Deserialize, schemars::JsonSchema)]
struct Order {
    id: String,
}

/// The number of items in an order: it follows from the arguments for a small order, and fails for an unknown one.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
struct Amount(u32);

impl Question for Amount {
    type Server = Shop;
    type On = Parameters<Order>;

    fn ask(_shop: &Shop, Parameters(order): Self::On) -> Result<DeclaredQuestion<Self>, FlowError> {
        match order.id.as_str() {
            "one" => Ok(DeclaredQuestion::known(Self(1))),
            "many" => Ok(DeclaredQuestion::form("How many?")),
            other => Err(FlowError::failed(format!("There is no order {other}."))),
        }
    }
}

/// Whether the price is right: it depends on the earlier answer, and on the shop's current price.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
struct Agreed(bool);

impl Question for Agreed {
    type Server = Shop;
    type On = (Parameters<Order>, Asked<Amount>);

    fn ask(shop: &Shop, (Parameters(order), Asked(amount)): Self::On) -> Result<DeclaredQuestion<Self>, FlowError> {
        Ok(DeclaredQuestion::form(format!("Pay {} for {} of {}?", shop.price() * amount.0, amount.0, order.id))
            .key("agreed"))
    }
}

/// A page to visit.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
struct SignedIn;

impl Question for SignedIn {
    type Server = Shop;
    type On = ();

    fn ask(_shop: &Shop, (): ()) -> Result<DeclaredQuestion<Self>, FlowError> {
        Ok(DeclaredQuestion::url("Sign in", "https://example.org/sign-in").key("sign_in"))
    }
}

/// A question with the key of another question.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
struct Clash(String);

impl Question for Clash {
    type Server = Shop;
    type On = ();

    fn ask(_shop: &Shop, (): ()) -> Result<DeclaredQuestion<Self>, FlowError> {
        Ok(DeclaredQuestion::form("Something else?").key("units"))
    }
}

/// The number of items at the current price, on which another question depends.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
struct Lot(u32);

impl Question for Lot {
    type Server = Shop;
    type On = ();

    fn ask(shop: &Shop, (): ()) -> Result<DeclaredQuestion<Self>, FlowError> {
        Ok(DeclaredQuestion::form(format!("How many at {}?", shop.price())))
    }
}

#[derive(Debug, Deserialize, schemars::JsonSchema)]
struct Bought(bool);

impl Question for Bought {
    type Server = Shop;
    type On = Asked<Lot>;

    fn ask(_shop: &Shop, Asked(lot): Self::On) -> Result<DeclaredQuestion<Self>, FlowError> {
        Ok(DeclaredQuestion::form(format!("Buy {}?", lot.0)))
    }
}

/// Not asked if the client cannot be asked.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
struct Size(String);

impl Question for Size {
    type Server = Shop;
    type On = ();

    fn ask(_shop: &Shop, (): ()) -> Result<DeclaredQuestion<Self>, FlowError> {
        Ok(DeclaredQuestion::form("What size?").or(Self("medium".to_owned())))
    }
}

#[tool_router(router = declared, vis = "pub(super)")]
impl Shop {
    #[tool]
    async fn weather(&self, Asked(units): Asked<Units>) -> String {
        self.count("weather");
        format!("{units:?}")
    }

    #[tool]
    async fn either(&self, Asked(units): Asked<Answer<Units>>) -> String {
        format!("{units:?}")
    }

    #[tool]
    async fn together(&self, Asked((units, day)): Asked<(Units, Day)>) -> String {
        format!("{units:?} on {}", day.day)
    }

    #[tool]
    async fn in_turn(&self, Asked(units): Asked<Units>, Asked(day): Asked<Day>) -> String {
        format!("{units:?} on {}", day.day)
    }

    #[tool]
    async fn buy(
        &self,
        Parameters(order): Parameters<Order>,
        Asked((amount, agreed)): Asked<(Amount, Agreed)>,
    ) -> String {
        self.count("buy");
        format!("{} of {}: {}", amount.0, order.id, agreed.0)
    }

    #[tool]
    async fn visit(&self, Asked(SignedIn): Asked<SignedIn>) -> String {
        "signed in".to_owned()
    }

    #[tool]
    async fn clash(&self, Asked((units, clash)): Asked<(Units, Clash)>) -> String {
        format!("{units:?} {}", clash.0)
    }

    #[tool]
    async fn clash_apart(&self, Asked(units): Asked<Units>, Asked(clash): Asked<Clash>) -> String {
        format!("{units:?} {}", clash.0)
    }

    #[tool]
    async fn size(&self, Asked(size): Asked<Size>) -> String {
        size.0
    }

    #[tool]
    async fn then_await(&self, Asked(units): Asked<Units>, ask: Ask) -> Result<String, FlowError> {
        self.count("then_await");
        let sure = ask.confirm("Sure?").await?;
        Ok(format!("{units:?} {sure}"))
    }

    #[tool]
    async fn then_guard(&self, Asked(units): Asked<Units>, round: Round) -> Result<CallToolResponse, FlowError> {
        match round.given::<bool>("sure") {
            Given::Accepted(sure) => Ok(rounds::text(format!("{units:?} {sure} {:?}", round.state::<u8>()?))),
            _ => round.questions().form::<bool>("sure", "Sure?").state(&7).send(),
        }
    }
}

/// Bodies that ask in ways that do not fit their declared questions.
#[tool_router(router = at_odds, vis = "pub(super)")]
impl Shop {
    #[tool]
    async fn lots(&self, Asked((lot, bought)): Asked<(Lot, Bought)>) -> String {
        format!("{} {}", lot.0, bought.0)
    }

    #[tool]
    async fn same_key(&self, Asked(units): Asked<Units>, round: Round) -> Result<CallToolResponse, FlowError> {
        match round.number() {
            0 | 1 => round.ask_form::<Units>("units", "Wipe everything, in which units?"),
            _ => Ok(rounds::text(format!("{units:?}"))),
        }
    }
}

#[prompt_router]
impl Shop {
    #[prompt]
    async fn plan(&self, Asked(units): Asked<Units>) -> Result<Vec<PromptMessage>, ErrorData> {
        Ok(vec![PromptMessage::new_text(Role::User, format!("{units:?}"))])
    }
}

pub(super) fn read_forecast(
    shop: &Shop,
    uri: &str,
    context: &RequestContext<RoleServer>,
) -> Result<ReadResourceResponse, ErrorData> {
    let Asked(units) = Asked::<Units>::from_context(shop, context)?;
    Ok(ReadResourceResult::new(vec![ResourceContents::text(format!("{units:?}"), uri)]).into())
}

fn stage() -> Stage<Shop> {
    let shop = Shop {
        tool_router: Shop::declared() + Shop::at_odds(),
        prompt_router: Shop::prompt_router(),
        ..Shop::default()
    };
    shop.set_price(10);
    Stage::of(shop)
}

#[tokio::test]
async fn nothing_of_the_handler_runs_before_the_answer_is_in() {
    let stage = stage();
    let client = stage.modern().await;
    let asked = client.call("weather", json!({})).await.asked();
    assert_eq!((asked.keys(), asked.message("units")), (vec!["units"], "Which units?"));
    assert_eq!((stage.handler().counted("weather"), stage.events.runs("weather")), (0, 0));
    assert_eq!(asked.accept("units", json!({"units": "metric"})).send(&client).await.text(), "Metric");
    assert_eq!((stage.handler().counted("weather"), stage.events.runs("weather")), (1, 1));
    assert_eq!(stage.server.waiting_calls(), 0, "no handler waits in memory");
}

#[tokio::test]
async fn a_retry_gets_the_same_reply_and_other_answers_get_none() {
    let stage = stage();
    let client = stage.modern().await;
    let asked = client.call("weather", json!({})).await.asked();
    for _ in 0..2 {
        assert_eq!(asked.accept("units", json!({"units": "metric"})).send(&client).await.text(), "Metric");
    }
    asked.accept("units", json!({"units": "imperial"})).send(&client).await.frozen();
    assert_eq!(stage.handler().counted("weather"), 1);
}

#[tokio::test]
async fn a_refusal_ends_the_call_in_words_or_is_handed_to_the_body() {
    let stage = stage();
    let client = stage.modern().await;
    let asked = client.call("weather", json!({})).await.asked();
    let ended = asked.decline("units").send(&client).await;
    assert_eq!((ended.text(), ended.is_tool_error()), ("The user declined: Which units?".to_owned(), true));
    let asked = client.call("weather", json!({})).await.asked();
    assert_eq!(asked.cancel("units").send(&client).await.text(), "The user cancelled: Which units?");
    assert_eq!(stage.handler().counted("weather"), 0);

    let asked = client.call("either", json!({})).await.asked();
    assert_eq!(asked.decline("units").send(&client).await.text(), "Declined");
    let asked = client.call("either", json!({})).await.asked();
    assert_eq!(asked.cancel("units").send(&client).await.text(), "Cancelled");
    let asked = client.call("either", json!({})).await.asked();
    assert_eq!(asked.accept("units", json!({"units": "metric"})).send(&client).await.text(), "Accepted(Metric)");
}

#[tokio::test]
async fn a_pair_is_one_round_and_two_arguments_are_two() {
    let stage = stage();
    let client = stage.modern().await;
    let both = client.call("together", json!({})).await.asked();
    assert_eq!(both.keys(), ["units", "day"]);
    let answered = both.accept("units", json!({"units": "metric"})).accept("day", json!({"day": "Monday"}));
    assert_eq!(answered.send(&client).await.text(), "Metric on Monday");

    let first = client.call("in_turn", json!({})).await.asked();
    assert_eq!(first.keys(), ["units"]);
    let second = first.accept("units", json!({"units": "metric"})).send(&client).await.asked();
    assert_eq!(second.keys(), ["day"]);
    assert_eq!(second.accept("day", json!({"day": "Monday"})).send(&client).await.text(), "Metric on Monday");
}

#[tokio::test]
async fn what_the_client_left_out_is_asked_again_and_what_it_gave_is_not() {
    let stage = stage();
    let client = stage.modern().await;
    let both = client.call("together", json!({})).await.asked();
    let rest = both.accept("units", json!({"units": "metric"})).send(&client).await.asked();
    assert_eq!(rest.keys(), ["day"]);
    let answered = rest.accept("day", json!({"day": "Monday"})).accept("units", json!({"units": "imperial"}));
    assert_eq!(answered.send(&client).await.text(), "Metric on Monday", "units were not asked in this round");
}

#[tokio::test]
async fn a_question_may_depend_on_the_arguments_and_on_an_answer_before_it() {
    let stage = stage();
    let client = stage.modern().await;
    let amount = client.call("buy", json!({"id": "many"})).await.asked();
    assert_eq!((amount.keys(), amount.message("amount")), (vec!["amount"], "How many?"));
    let agreed = amount.accept("amount", json!({"amount": 3})).send(&client).await.asked();
    assert_eq!((agreed.keys(), agreed.message("agreed")), (vec!["agreed"], "Pay 30 for 3 of many?"));
    assert_eq!(agreed.accept("agreed", json!({"agreed": true})).send(&client).await.text(), "3 of many: true");

    let at_once = client.call("buy", json!({"id": "one"})).await.asked();
    assert_eq!((at_once.keys(), at_once.message("agreed")), (vec!["agreed"], "Pay 10 for 1 of one?"));

    let unknown = client.call("buy", json!({"id": "none"})).await;
    assert_eq!((unknown.text(), unknown.is_tool_error()), ("There is no order none.".to_owned(), true));
    assert_eq!(stage.handler().counted("buy"), 1);
}

/// A user who was not shown a price has not agreed to it.
#[tokio::test]
async fn an_answer_to_a_question_that_has_changed_is_not_an_answer() {
    let stage = stage();
    let client = stage.modern().await;
    let cheap = client.call("buy", json!({"id": "one"})).await.asked();
    stage.server.handler().set_price(99);
    let dear = cheap.accept("agreed", json!({"agreed": true})).send(&client).await.asked();
    assert_eq!(dear.message("agreed"), "Pay 99 for 1 of one?");
    assert_eq!(stage.handler().counted("buy"), 0);
    assert_eq!(dear.accept("agreed", json!({"agreed": true})).send(&client).await.text(), "1 of one: true");
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_asked_for_again_three_times() {
    let stage = stage();
    let client = stage.modern().await;
    let mut asked = client.call("weather", json!({})).await.asked();
    for _ in 0..3 {
        asked = asked.accept("units", json!({"units": "kelvin"})).send(&client).await.asked();
        assert_eq!(asked.message("units"), "Which units? (`units` must be one of metric, imperial)");
    }
    let ended = asked.accept("units", json!({"units": "kelvin"})).send(&client).await;
    assert!(ended.is_tool_error());
    assert_eq!(ended.text(), r#"The answer to "Which units?" is not valid: `units` must be one of metric, imperial"#);
    assert_eq!(stage.handler().counted("weather"), 0);
}

#[tokio::test]
async fn a_question_on_which_another_depends_is_asked_again_as_often_as_any() {
    let stage = stage();
    let client = stage.modern().await;
    let mut asked = client.call("buy", json!({"id": "many"})).await.asked();
    for _ in 0..3 {
        asked = asked.accept("amount", json!({"amount": "three"})).send(&client).await.asked();
        assert_eq!(asked.keys(), ["amount"]);
    }
    assert!(asked.accept("amount", json!({"amount": "three"})).send(&client).await.is_tool_error());
}

#[tokio::test]
async fn nothing_follows_from_an_answer_to_a_question_that_has_changed() {
    let stage = stage();
    let client = stage.modern().await;
    let cheap = client.call("lots", json!({})).await.asked();
    stage.server.handler().set_price(99);
    let dear = cheap.accept("lot", json!({"lot": 3})).send(&client).await.asked();
    assert_eq!((dear.keys(), dear.message("lot")), (vec!["lot"], "How many at 99?"));
    let bought = dear.accept("lot", json!({"lot": 1})).send(&client).await.asked();
    assert_eq!(bought.message("bought"), "Buy 1?");
}

/// Otherwise the answer to the body's question would count for the declared question.
#[tokio::test]
async fn a_body_that_asks_under_the_key_of_what_is_declared_is_told() {
    const TOLD: &str = "two questions of this round have the key `units`: give each its own key";
    let stage = stage();
    let client = stage.modern().await;
    let units = client.call("same_key", json!({})).await.asked();
    let ended = units.accept("units", json!({"units": "metric"})).send(&client).await;
    assert_eq!(ended.error()["message"], TOLD);

    let shop = Shop { tool_router: Shop::at_odds(), ..Shop::default() };
    let stage = Stage::with(shop, |builder| builder.legacy(Legacy::push()));
    let client = stage.legacy().await;
    let leg = client.start("tools/call", json!({"name": "same_key"})).await;
    client.pushed().await.unwrap().answer(accept(json!({"units": "metric"}))).await;
    assert_eq!(leg.finish().await.error()["message"], TOLD);
}

#[tokio::test]
async fn answers_that_nobody_asked_for_are_not_looked_at() {
    let stage = stage();
    let client = stage.modern().await;
    let answers = json!({"units": {"action": "accept", "content": {"units": "metric"}}});
    let uninvited = json!({"name": "weather", "arguments": {}, "inputResponses": answers});
    assert_eq!(client.request("tools/call", uninvited).await.asked().keys(), ["units"]);

    let first = client.call("in_turn", json!({})).await.asked();
    let forged = first.accept("units", json!({"units": "metric"})).accept("day", json!({"day": "forged"}));
    assert_eq!(forged.send(&client).await.asked().keys(), ["day"]);
}

#[tokio::test]
async fn a_client_that_cannot_be_asked_is_told_so_or_gets_the_value_named_for_it() {
    let stage = stage();
    for era in [Era::Modern, Era::Legacy] {
        let client = Client::connect(stage.server.clone(), era, json!({})).await;
        assert_eq!(client.call("weather", json!({})).await.error()["code"], -32021, "{era:?}");
        assert_eq!(client.call("size", json!({})).await.text(), "medium", "{era:?}");
        assert!(!client.was_pushed());
    }
    let client = stage.modern().await;
    let asked = client.call("size", json!({})).await.asked();
    assert!(asked.decline("size").send(&client).await.is_tool_error(), "a refusal is final");
}

#[tokio::test]
async fn a_page_can_be_declared_as_well() {
    let stage = stage();
    let client = stage.modern().await;
    let asked = client.call("visit", json!({})).await.asked();
    assert_eq!(asked.question("sign_in")["params"]["url"], "https://example.org/sign-in");
    let agreed = asked.retry().respond("sign_in", json!({"action": "accept"}));
    assert_eq!(agreed.send(&client).await.text(), "signed in");
    let other = client.call("visit", json!({})).await.asked();
    let id = |asked: &rounds::test::AskedRound| asked.question("sign_in")["params"]["elicitationId"].clone();
    assert_ne!(id(&asked), id(&other), "a client may identify pages by their ids");
}

#[tokio::test]
async fn two_questions_of_one_key_are_a_mistake_that_is_told() {
    let stage = stage();
    let client = stage.modern().await;
    let error = client.call("clash", json!({})).await.error().clone();
    assert_eq!(error["message"], "two questions of this round have the key `units`: give each its own key");
    // Of two in sequence, each would be asked again once the other was answered.
    let asked = client.call("clash_apart", json!({})).await.asked();
    let error = asked.accept("units", json!({"units": "metric"})).send(&client).await.error().clone();
    assert_eq!(error["message"], "two questions of this round have the key `units`: give each its own key");
}

#[tokio::test]
async fn prompts_and_resources_declare_as_tools_do() {
    let stage = stage();
    let client = stage.modern().await;
    let asked = client.prompt("plan", json!({})).await.asked();
    let planned = asked.accept("units", json!({"units": "metric"})).send(&client).await;
    assert_eq!(planned.result()["messages"][0]["content"]["text"], "Metric");
    let asked = client.read("weather://here").await.asked();
    let read = asked.accept("units", json!({"units": "imperial"})).send(&client).await;
    assert_eq!(read.result()["contents"][0]["text"], "Imperial");

    let asked = client.prompt("plan", json!({})).await.asked();
    assert_eq!(asked.decline("units").send(&client).await.error()["code"], -32600);
}

#[tokio::test]
async fn what_the_body_asks_comes_after_what_is_declared() {
    let stage = stage();
    let client = stage.modern().await;
    let units = client.call("then_await", json!({})).await.asked();
    let sure = units.accept("units", json!({"units": "metric"})).send(&client).await.asked();
    assert_eq!((sure.keys(), stage.handler().counted("then_await")), (vec!["confirm"], 1));
    assert_eq!(sure.accept("confirm", json!({"confirm": true})).send(&client).await.text(), "Metric true");
    assert_eq!(stage.handler().counted("then_await"), 1);

    let units = client.call("then_guard", json!({})).await.asked();
    let sure = units.accept("units", json!({"units": "metric"})).send(&client).await.asked();
    assert_eq!(sure.keys(), ["sure"]);
    assert_eq!(sure.accept("sure", json!({"sure": true})).send(&client).await.text(), "Metric true Some(7)");
}

#[tokio::test]
async fn a_client_of_the_legacy_era_is_asked_over_its_connection_and_the_body_runs_once() {
    let stage = stage();
    let client = stage.legacy().await;
    let leg = client.start("tools/call", json!({"name": "together"})).await;
    let (one, two) = (client.pushed().await.unwrap(), client.pushed().await.unwrap());
    let answer = |message: &Value| match message.as_str().unwrap() {
        "Which units?" => accept(json!({"units": "metric"})),
        _ => accept(json!({"day": "Monday"})),
    };
    for pushed in [one, two] {
        let answer = answer(&pushed.params()["message"]);
        pushed.answer(answer).await;
    }
    assert_eq!(leg.finish().await.text(), "Metric on Monday");
    assert_eq!(stage.events.runs("together"), 1);

    let leg = client.start("tools/call", json!({"name": "buy", "arguments": {"id": "many"}})).await;
    client.pushed().await.unwrap().answer(accept(json!({"amount": "three"}))).await;
    client.pushed().await.unwrap().answer(accept(json!({"amount": 3}))).await;
    let agreed = client.pushed().await.unwrap();
    assert_eq!(agreed.params()["message"], "Pay 30 for 3 of many?");
    agreed.answer(accept(json!({"agreed": true}))).await;
    assert_eq!(leg.finish().await.text(), "3 of many: true");

    let leg = client.start("tools/call", json!({"name": "weather"})).await;
    client.pushed().await.unwrap().answer(json!({"action": "decline"})).await;
    assert_eq!(leg.finish().await.text(), "The user declined: Which units?");
    let pushed = stage.events.stations().into_iter().filter(|station| matches!(station, Station::Pushed { .. }));
    assert_eq!(pushed.count(), 6);
}
