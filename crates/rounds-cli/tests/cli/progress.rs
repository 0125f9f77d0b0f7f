//! The progress that a server reports, over every transport.

use crate::{
    call::served_on_pipes,
    process::{Server, run},
};

#[tokio::test]
async fn each_leg_shows_the_progress_of_a_durable_tool() {
    let (server, stdio) = (Server::start(&[]).await, served_on_pipes());
    for at in [&[server.url.as_str()][..], &["--stdio", &stdio]] {
        for era in ["modern", "legacy"] {
            let call = ["book_flight", "from=ZRH", "to=LIS", "date=2026-12-01", "--verbose", "--era", era];
            let answers = ["--answer", "seat.seat=12A", "--answer", "confirm.confirm=yes"];
            let ended = run(&[&["call"], at, &call, &answers].concat()).await;
            assert_eq!(ended.code, Some(0), "{ended:?}");
            // In which leg a line is printed is not fixed: rmcp delivers notifications beside the responses.
            for told in ["1 of 3: the flight is priced", "2 of 3: the seat is chosen"] {
                assert!(ended.stderr.contains(&format!(" ← progress: {told}\n")), "{era}: {ended:?}");
            }
        }
    }
}
