//! Audit lines of servers whose name is used again.

use std::time::Duration;

use toolbay_shared::audit::{AppendedLines, AuditStream, AuditTail, ForwardedLine, read_forwarded};

use crate::server::{NatsServer, storage_plan};

fn lines(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

async fn forwarded(server: &NatsServer) -> Vec<(u64, String)> {
    let (mut found, operator) = (Vec::new(), server.connect("operator").await);
    let take = |ForwardedLine { sequence, line, .. }: ForwardedLine| {
        found.push((sequence, line));
        Ok(())
    };
    read_forwarded(&operator, take).await.unwrap();
    found
}

/// NATS removed the lines of the second process as duplicates of the first, and acknowledged them.
#[tokio::test(flavor = "multi_thread")]
async fn no_line_of_a_process_passes_for_that_of_another_one_with_its_name() {
    let server = NatsServer::start();
    server.publication().await;
    server.create_storage(&storage_plan(1, 1 << 20, Duration::from_secs(60))).await;
    let open = async || AuditStream::open(&server.connect("a").await, "a").await.unwrap();
    let (frozen, other) = (open().await, open().await);
    let begun = frozen.append(AuditTail::default(), &lines(&["1", "2"])).await;
    assert_eq!((begun.count, begun.tail.number), (2, 2));
    // A repeated line is stored once.
    let again = frozen.append(AuditTail { number: 1, ..begun.tail }, &lines(&["2"])).await;
    assert_eq!(again.count, 1);

    // Another process gets the name, with a state directory of its own.
    let last = other.last().await.unwrap().unwrap();
    assert_eq!((last.tail, &*last.line), (begun.tail, "2"));
    let replaced = other.append(last.tail, &lines(&["other 3", "other 4"])).await;
    assert_eq!((replaced.count, replaced.tail.number), (2, 4));

    // The first one wakes up. It notices, and continues behind the other.
    let wakes = frozen.append(begun.tail, &lines(&["3", "4"])).await;
    assert_eq!(wakes, AppendedLines { count: 0, tail: begun.tail });
    let last = frozen.last().await.unwrap().unwrap();
    assert_eq!(frozen.append(last.tail, &lines(&["3", "4"])).await.count, 2);
    let expected = ["1", "2", "other 3", "other 4", "3", "4"];
    let expected: Vec<(u64, String)> = (1..).zip(lines(&expected)).collect();
    assert_eq!(forwarded(&server).await, expected);
}
