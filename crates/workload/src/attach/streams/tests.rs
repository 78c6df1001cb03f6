use futures_util::StreamExt as _;
use tokio::io::AsyncWriteExt as _;

use tokio_tungstenite::tungstenite::protocol::frame::FrameHeader;

use super::*;

/// The other end of an attachment.
type Pod = WebSocketStream<DuplexStream>;

/// An attachment over a connection that holds `buffer` bytes.
async fn attached(buffer: usize) -> (Pipe, Pod) {
    let (ours, theirs) = tokio::io::duplex(buffer);
    (open(ours).await, WebSocketStream::from_raw_socket(theirs, Role::Server, None).await)
}

fn message(stream: u8, bytes: &[u8]) -> Message {
    Message::binary([&[stream], bytes].concat())
}

async fn read(stream: &mut (impl AsyncRead + Unpin), length: usize) -> String {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await.unwrap();
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn the_streams_are_kept_apart_and_unknown_ones_are_ignored() {
    let (mut pipe, mut pod) = attached(1 << 20).await;
    for (stream, words) in [(STDOUT, "one "), (STDERR, "a log"), (9, "nobody's"), (STDOUT, ""), (STDOUT, "line\n")] {
        pod.send(message(stream, words.as_bytes())).await.unwrap();
    }
    pod.send(Message::Ping(Bytes::from_static(b"there?"))).await.unwrap();
    pod.send(Message::binary(Bytes::new())).await.unwrap();
    pod.send(message(STDOUT, b"last")).await.unwrap();
    assert_eq!(read(&mut pipe.stdout, "one line\nlast".len()).await, "one line\nlast");
    assert_eq!(read(&mut pipe.stderr, "a log".len()).await, "a log");
    assert_eq!(pod.next().await.unwrap().unwrap(), Message::Pong(Bytes::from_static(b"there?")));
}

#[tokio::test]
async fn bytes_arrive_in_order_and_in_messages_that_the_api_server_accepts() {
    let (mut pipe, mut pod) = attached(1 << 20).await;
    let words: Vec<u8> = (0..3 * CHUNK).map(|number| b'a' + u8::try_from(number % 26).unwrap()).collect();
    pipe.stdin.write_all(&words).await.unwrap();
    pipe.stdin.flush().await.unwrap();
    let mut heard = Vec::new();
    while heard.len() < words.len() {
        let Message::Binary(message) = pod.next().await.unwrap().unwrap() else { panic!("not a message of a stream") };
        assert!((2..=CHUNK + 1).contains(&message.len()), "{}", message.len());
        assert_eq!(message.first(), Some(&STDIN));
        heard.extend_from_slice(&message[1..]);
    }
    assert!(heard == words);
}

#[tokio::test]
async fn output_of_a_server_that_does_not_read_is_received() {
    let (mut pipe, mut pod) = attached(1024).await;
    // More than all buffers hold.
    let words = vec![b'x'; 4 * BUFFER];
    let writes = tokio::spawn(async move {
        let written = pipe.stdin.write_all(&words).await;
        (pipe.stdin, written)
    });
    let says = async {
        for _ in 0..64 {
            pod.send(message(STDOUT, &[b'y'; 1024])).await.unwrap();
        }
    };
    let ((), said) = tokio::join!(says, read(&mut pipe.stdout, 64 * 1024));
    assert_eq!(said, "y".repeat(64 * 1024));
    assert!(!writes.is_finished());
    writes.abort();
}

#[tokio::test]
async fn an_attachment_that_ends_or_breaks_ends_its_stream_after_what_came_before() {
    for ends in [Some(message(STATUS, br#"{"status":"Success"}"#)), Some(Message::Close(None)), None] {
        let (mut pipe, mut pod) = attached(1 << 20).await;
        pod.send(message(STDOUT, b"last words")).await.unwrap();
        let breaks = ends.is_none();
        match ends {
            Some(end) => pod.send(end).await.unwrap(),
            None => drop(pod),
        }
        let mut said = Vec::new();
        let read = pipe.stdout.read_to_end(&mut said).await;
        assert_eq!(said, b"last words");
        assert_eq!(read.is_err(), breaks, "{read:?}");
    }
}

#[tokio::test]
async fn a_log_without_a_reader_blocks_nothing() {
    let (mut pipe, mut pod) = attached(1 << 20).await;
    drop(pipe.stderr);
    for _ in 0..4 {
        pod.send(message(STDERR, &vec![b'l'; BUFFER / 2])).await.unwrap();
    }
    pod.send(message(STDOUT, b"words")).await.unwrap();
    assert_eq!(read(&mut pipe.stdout, 5).await, "words");
}

#[tokio::test]
async fn dropping_an_attachment_closes_its_connection() {
    let (pipe, mut pod) = attached(1 << 20).await;
    drop(pipe);
    assert!(!matches!(pod.next().await, Some(Ok(_))));
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_kept_open() {
    let (_pipe, mut pod) = attached(1 << 20).await;
    for _ in 0..2 {
        assert_eq!(pod.next().await.unwrap().unwrap(), Message::Ping(Bytes::new()));
    }
}

/// A frame as a server writes it.
fn frame(is_final: bool, opcode: OpCode, content: &[u8]) -> Vec<u8> {
    let header = FrameHeader { is_final, opcode, ..FrameHeader::default() };
    let mut bytes = Vec::new();
    header.format(u64::try_from(content.len()).unwrap(), &mut bytes).unwrap();
    [bytes, content.to_vec()].concat()
}

/// The output of a server that sends these bytes, in chunks, and then nothing more.
async fn heard(bytes: Vec<u8>, piece: usize) -> (Vec<u8>, Vec<u8>, std::io::Result<usize>) {
    let (ours, mut theirs) = tokio::io::duplex(piece);
    let mut pipe = open(ours).await;
    let writes = tokio::spawn(async move {
        // The reader may have stopped.
        let _broken = theirs.write_all(&bytes).await;
    });
    let (mut said, mut logged) = (Vec::new(), Vec::new());
    let read = pipe.stdout.read_to_end(&mut said).await;
    drop(pipe.stdout);
    pipe.stderr.read_to_end(&mut logged).await.unwrap();
    drop(pipe.held);
    writes.await.unwrap();
    (said, logged, read)
}

#[tokio::test]
async fn messages_are_complete_in_any_chunks() {
    let (binary, more) = (OpCode::Data(Data::Binary), OpCode::Data(Data::Continue));
    let long = vec![b'l'; 70_000];
    let bytes = [
        frame(false, binary, b"\x01in "),
        frame(true, OpCode::Control(Control::Ping), b"?"),
        frame(false, more, b""),
        frame(true, OpCode::Control(Control::Pong), b""),
        frame(true, more, b"parts "),
        frame(false, binary, b"\x02log"),
        frame(true, more, b"ged"),
        frame(true, binary, b"\x09nobody's"),
        frame(true, binary, &[b"\x01".as_slice(), &long].concat()),
        frame(true, binary, b"\x03{}"),
        frame(true, binary, b"\x01 too late"),
    ];
    for piece in [1, 2, 3, 7, 1000, 1 << 20] {
        let (said, logged, read) = heard(bytes.concat(), piece).await;
        assert!(said == [b"in parts ".as_slice(), &long].concat(), "{piece}: {} bytes", said.len());
        assert_eq!(logged, b"logged", "{piece}");
        assert!(read.is_ok(), "{piece}: {read:?}");
    }
}

#[tokio::test]
async fn invalid_and_truncated_frames_are_errors() {
    let whole = frame(true, OpCode::Data(Data::Binary), b"\x01whole");
    let mut masked = whole.clone();
    masked[1] |= 0x80;
    let mut reserved = whole.clone();
    reserved[0] |= 0x40;
    let mut unknown = whole.clone();
    unknown[0] = 0x83;
    let long_ping = frame(true, OpCode::Control(Control::Ping), &[0; 126]);
    let cut = whole[..4].to_vec();
    for (name, bytes, words) in [
        ("masked", masked, ""),
        ("reserved", reserved, ""),
        ("unknown", unknown, ""),
        ("long ping", long_ping, ""),
        ("cut", cut, "w"),
        ("cut in a header", vec![0x82], ""),
        ("nothing", Vec::new(), ""),
    ] {
        let (said, _, read) = heard([whole.clone(), bytes].concat(), 1 << 20).await;
        assert_eq!(String::from_utf8(said).unwrap(), format!("whole{words}"), "{name}");
        assert!(read.is_err(), "{name}");
    }
}
