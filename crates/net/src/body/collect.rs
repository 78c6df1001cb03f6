//! Reading a whole body, within bounds.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame};
use tokio::time::{Instant, Sleep};

use super::BodyError;
use crate::BoxError;

/// The most that is read of a body, and how long its sender may pause.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// The longest body; exactly this many bytes are fine.
    pub bytes: usize,
    /// How long the sender may take for the next `pace` bytes. Not a limit on the whole: a slow sender that keeps sending is
    /// served, and one that lets single bytes drip is not.
    pub idle: Duration,
    /// How many bytes each `idle` must bring; with 1, any part is enough.
    pub pace: usize,
}

/// Reads a body to its end. One that announces to be too long is refused before anything is read, and one that comes in
/// one part is not copied.
pub async fn collect<B>(body: B, limit: Limit) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let too_large = BodyError::TooLarge { limit: limit.bytes };
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > limit.bytes {
        return Err(too_large);
    }
    let mut body = pin!(body);
    let mut pause = pin!(None::<Sleep>);
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    // What came since the clock was set.
    let mut fresh = 0;
    while let Some(frame) = next(body.as_mut(), pause.as_mut(), limit, &mut fresh).await? {
        // Trailers say nothing that we would use.
        let Ok(data) = frame.into_data() else { continue };
        if data.len() > limit.bytes - first.len() - rest.len() {
            return Err(too_large);
        }
        fresh += data.len();
        if first.is_empty() && rest.is_empty() {
            first = data;
            continue;
        }
        if rest.is_empty() {
            rest.reserve(announced.max(first.len() + data.len()));
            rest.extend_from_slice(&std::mem::take(&mut first));
        }
        rest.extend_from_slice(&data);
    }
    Ok(if rest.is_empty() { first } else { rest.freeze() })
}

/// Reads on and forgets what comes, within bounds. A connection that is closed while its peer still sends is reset, and the peer
/// never sees the answer that it got.
pub async fn discard<B>(body: B, bytes: usize, time: Duration)
where
    B: Body<Data = Bytes>,
{
    let read = async {
        let mut body = pin!(body);
        let mut left = bytes;
        while let Some(Ok(frame)) = poll_fn(|context| body.as_mut().poll_frame(context)).await {
            let length = frame.data_ref().map_or(0, Bytes::len);
            if length > left {
                return;
            }
            left -= length;
        }
    };
    let _too_long = tokio::time::timeout(time, read).await;
}

/// The next frame. The clock is only looked at when there is nothing to read yet.
async fn next<B>(
    mut body: Pin<&mut B>,
    mut pause: Pin<&mut Option<Sleep>>,
    limit: Limit,
    fresh: &mut usize,
) -> Result<Option<Frame<Bytes>>, BodyError>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let mut waiting = false;
    poll_fn(|context: &mut Context<'_>| {
        if let Poll::Ready(frame) = body.as_mut().poll_frame(context) {
            return Poll::Ready(frame.transpose().map_err(|error| BodyError::Broken(error.into())));
        }
        if !waiting {
            waiting = true;
            match pause.as_mut().as_pin_mut() {
                Some(_) if *fresh < limit.pace => {}
                Some(pause) => pause.reset(Instant::now() + limit.idle),
                None => pause.set(Some(tokio::time::sleep(limit.idle))),
            }
            if *fresh >= limit.pace {
                *fresh = 0;
            }
        }
        match pause.as_mut().as_pin_mut().map(|pause| pause.poll(context)) {
            Some(Poll::Ready(())) => Poll::Ready(Err(BodyError::Stalled { idle: limit.idle })),
            _ => Poll::Pending,
        }
    })
    .await
}
