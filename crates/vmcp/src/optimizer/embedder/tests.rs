use serde_json::{Value, json};
use skep_net::Addresses;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::optimizer::index::Index;

/// A TEI service whose vectors say what a text is about.
#[derive(Debug)]
struct Tei {
    url: String,
    model: Mutex<String>,
    /// The texts of each request.
    asked: Mutex<Vec<Vec<String>>>,
    is_failing: Mutex<bool>,
    /// A text that the model refuses.
    refused: Mutex<Option<&'static str>>,
}

impl Tei {
    async fn start() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (model, asked) = (Mutex::new("one".to_owned()), Mutex::default());
        let tei = Arc::new(Self { url, model, asked, is_failing: Mutex::new(false), refused: Mutex::default() });
        let serving = tei.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serving.clone().answer(stream));
            }
        });
        tei
    }

    async fn answer(self: Arc<Self>, mut stream: TcpStream) {
        let mut request = Vec::new();
        let (head, body) = loop {
            let mut part = [0; 4096];
            let read = stream.read(&mut part).await.unwrap_or_default();
            if read == 0 {
                return;
            }
            request.extend_from_slice(&part[..read]);
            let text = String::from_utf8_lossy(&request).into_owned();
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let length =
                head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                break (head.to_owned(), body.to_owned());
            }
        };
        let mut is_refused = false;
        let content = if head.starts_with("GET /info ") {
            json!({ "model_id": *self.model.lock().unwrap(), "max_client_batch_size": 2 })
        } else {
            let body: Value = serde_json::from_str(&body).unwrap();
            let texts: Vec<String> = serde_json::from_value(body["inputs"].clone()).unwrap();
            let vectors = texts.iter().map(|text| meaning(text)).collect::<Vec<_>>();
            let refused = *self.refused.lock().unwrap();
            is_refused = refused.is_some_and(|refused| texts.iter().any(|text| text.contains(refused)));
            self.asked.lock().unwrap().push(texts);
            json!(vectors)
        };
        let status = match *self.is_failing.lock().unwrap() {
            true => "503 Service Unavailable",
            false if is_refused => "400 Bad Request",
            false => "200 OK",
        };
        let content = content.to_string();
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n{content}",
            content.len()
        );
        // The client may have left.
        let _sent = stream.write_all(answer.as_bytes()).await;
    }

    fn asked(&self) -> Vec<Vec<String>> {
        self.asked.lock().unwrap().clone()
    }
}

fn meaning(text: &str) -> Vec<f32> {
    let about = |words: &[&str]| if words.iter().any(|word| text.contains(word)) { 1.0 } else { 0.0 };
    let vector = vec![about(&["rain", "weather"]), about(&["bug", "issue"]), 0.1];
    if text.contains("odd") { vec![1.0] } else { vector }
}

fn embedder(url: &str) -> Arc<Embedder> {
    let config = serde_json::from_value(json!({})).unwrap();
    let service = EmbeddingService::new(&config, url, None, Addresses::Machine, Duration::from_secs(30)).unwrap();
    Embedder::new(service, SharedIndex::default(), VirtualMetrics::default())
}

fn add(embedder: &Embedder, tools: &[(&str, &str)]) -> Rows {
    with(&embedder.index, |index: &mut Index| {
        index.add(tools.iter().map(|(name, description)| (*name, *description, *description)))
    })
}

const TOOLS: [(&str, &str); 3] =
    [("forecast", "weather of a city"), ("report", "file an issue"), ("send", "a message")];

#[tokio::test]
async fn tools_are_found_by_what_they_mean() {
    let tei = Tei::start().await;
    let embedder = embedder(&tei.url);
    let rows = add(&embedder, &TOOLS);
    assert_eq!(embedder.nearest(&rows, "will it rain", 1.0).await, None, "there is no vector yet");
    assert!(tei.asked().is_empty(), "a search computes none but its own");
    assert_eq!(embedder.round().await, Ok(false));
    let batches = tei.asked();
    assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1], "no more at once than the service takes");
    assert_eq!(batches[0][0], "name: forecast description: weather of a city");
    let near = embedder.nearest(&rows, "will it rain", 0.5).await.unwrap();
    assert_eq!(near, ["forecast"], "what is farther than the threshold is left out");
    assert_eq!(embedder.nearest(&rows, "will it rain", 2.0).await.unwrap()[0], "forecast");
    assert_eq!(tei.asked().last().unwrap(), &["will it rain"], "only the text of the search is computed");
}

#[tokio::test]
async fn what_was_computed_once_is_kept_and_another_model_computes_anew() {
    let tei = Tei::start().await;
    let embedder = embedder(&tei.url);
    let rows = add(&embedder, &TOOLS);
    embedder.round().await.unwrap();
    with(&embedder.index, |index| index.release(&rows));
    let rows = add(&embedder, &TOOLS);
    embedder.round().await.unwrap();
    assert_eq!(tei.asked().len(), 2, "the tools came back");
    assert_eq!(with(&embedder.index, |index| index.vectors(&rows).len()), 3);
    "two".clone_into(&mut tei.model.lock().unwrap());
    embedder.round().await.unwrap();
    assert_eq!(tei.asked().len(), 4);
}

#[tokio::test]
async fn a_service_that_fails_leaves_searches_to_words_until_it_is_back() {
    let tei = Tei::start().await;
    let embedder = embedder(&tei.url);
    let rows = add(&embedder, &TOOLS);
    embedder.round().await.unwrap();
    *tei.is_failing.lock().unwrap() = true;
    assert_eq!(embedder.nearest(&rows, "rain", 1.0).await, None);
    let asked = tei.asked().len();
    assert_eq!(embedder.nearest(&rows, "rain", 1.0).await, None);
    assert_eq!(tei.asked().len(), asked, "it is not called for every search while it fails");
    assert_eq!(embedder.round().await, Err(EmbeddingError::Status(503)));
    *tei.is_failing.lock().unwrap() = false;
    embedder.round().await.unwrap();
    assert_eq!(embedder.nearest(&rows, "rain", 0.5).await.unwrap(), ["forecast"]);
}

/// Otherwise every round would compute them again.
#[tokio::test]
async fn what_was_computed_before_a_text_was_refused_is_kept() {
    let tei = Tei::start().await;
    let embedder = embedder(&tei.url);
    let rows = add(&embedder, &TOOLS);
    *tei.refused.lock().unwrap() = Some("a message");
    assert_eq!(embedder.round().await, Err(EmbeddingError::Status(400)));
    assert_eq!(with(&embedder.index, |index| index.vectors(&rows).len()), 2);
    assert_eq!(embedder.round().await, Err(EmbeddingError::Status(400)));
    assert_eq!(tei.asked().last().unwrap().len(), 1, "only what is missing is computed again");
}

#[tokio::test]
async fn a_view_without_vectors_is_searched_by_words_alone() {
    let tei = Tei::start().await;
    let embedder = embedder(&tei.url);
    add(&embedder, &TOOLS);
    embedder.round().await.unwrap();
    let (new, asked) = (add(&embedder, &[("new", "a new bug")]), tei.asked().len());
    assert_eq!(embedder.nearest(&new, "bug", 2.0).await, None);
    assert_eq!(tei.asked().len(), asked, "there is nothing to compare with");
}

#[test]
fn a_long_description_is_embedded_in_part() {
    let embedder = embedder("http://127.0.0.1:9");
    add(&embedder, &[("wordy", &"\u{e4}".repeat(100_000))]);
    let missing = with(&embedder.index, |index| index.without_vector(1));
    assert_eq!(missing[0].1.len(), 2047, "it ends before half a letter");
}

#[tokio::test]
async fn vectors_of_other_dimensions_are_skipped() {
    let tei = Tei::start().await;
    let embedder = embedder(&tei.url);
    let rows = add(&embedder, &[("odd", "odd weather"), ("forecast", "weather")]);
    embedder.round().await.unwrap();
    assert_eq!(embedder.nearest(&rows, "rain", 2.0).await.unwrap(), ["forecast"]);
}

#[tokio::test]
async fn the_background_task_computes_what_is_new_and_ends_with_the_embedder() {
    let tei = Tei::start().await;
    let embedder = embedder(&tei.url);
    let rows = add(&embedder, &TOOLS);
    embedder.start();
    while with(&embedder.index, |index| index.vectors(&rows).len()) < 3 {
        tokio::task::yield_now().await;
    }
    let more = add(&embedder, &[("new", "a new bug")]);
    embedder.wake();
    while with(&embedder.index, |index| index.vectors(&more).len()) < 1 {
        tokio::task::yield_now().await;
    }
    let gone = Arc::downgrade(&embedder.wanted);
    drop(embedder);
    while gone.upgrade().is_some() {
        tokio::task::yield_now().await;
    }
}

#[test]
fn distances_are_those_of_directions() {
    let close = |one: &[f32], other: &[f32], expected: f64| (distance(one, other).unwrap() - expected).abs() < 1e-6;
    assert!(
        close(&[1.0, 0.0], &[2.0, 0.0], 0.0) && close(&[1.0, 0.0], &[0.0, 3.0], 1.0) && close(&[1.0], &[-1.0], 2.0)
    );
    assert_eq!(distance(&[1.0], &[1.0, 2.0]), None);
    assert_eq!(distance(&[0.0], &[1.0]), None, "it has no direction");
}

#[test]
fn kept_vectors_are_bounded_and_those_that_are_used_stay() {
    let mut kept = KeptVectors::default();
    let key = |number: usize| {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&number.to_be_bytes());
        key
    };
    let vector: Vector = vec![1.0; Caches::of_process().vectors / 4 / 10].into();
    for number in 0..20 {
        kept.insert(key(number), vector.clone());
        assert!(kept.get(&key(0)).is_some());
    }
    assert_eq!((kept.vectors.len(), kept.order.len()), (10, 10));
    assert_eq!(kept.bytes, 10 * size_of_val(&*vector));
    assert!(kept.get(&key(1)).is_none());
}
