//! Seeing a body on its way, without changing it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::{Body, BodyError, Kind};

/// Sees a body while it is sent. It is dropped when the body has ended or has no reader any more.
pub trait BodyWatch: Send {
    /// A part is sent.
    fn part(&mut self, bytes: &[u8]);

    /// The body has ended. Without this, it was cut off: its reader left, or its writer failed.
    fn end(&mut self);
}

/// A body, and what sees it.
struct Watched<W> {
    body: Body,
    watch: Option<W>,
}

impl Body {
    /// The same, with something that sees it on its way. A complete body is seen at once.
    #[must_use]
    pub fn watched(self, mut watch: impl BodyWatch + 'static) -> Self {
        match &self.0 {
            Kind::Empty => watch.end(),
            Kind::Full(bytes) | Kind::Counted(bytes) => {
                watch.part(bytes);
                watch.end();
            }
            Kind::Parts(parts) => {
                parts.iter().rev().for_each(|part| watch.part(part));
                watch.end();
            }
            Kind::Incoming(_) | Kind::Channel(_) | Kind::Boxed(_) => {
                return Self(Kind::Boxed(Box::pin(Watched { body: self, watch: Some(watch) })));
            }
            Kind::Leased(_) | Kind::Passing(_) => {
                return Self(Kind::Passing(Box::pin(Watched { body: self, watch: Some(watch) })));
            }
        }
        self
    }
}

impl<W: BodyWatch> HttpBody for Watched<W> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        // A reader that knows the length asks for no end after the last part.
        let is_over = self.body.is_end_stream();
        let this = self.get_mut();
        match (&frame, &mut this.watch) {
            (Some(Ok(frame)), Some(watch)) => {
                if let Some(bytes) = frame.data_ref() {
                    watch.part(bytes);
                }
                if is_over {
                    watch.end();
                    this.watch = None;
                }
            }
            (None, Some(watch)) => {
                watch.end();
                this.watch = None;
            }
            (Some(Err(_)), _) => this.watch = None,
            (_, None) => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

// Nothing in it is ever pinned.
impl<W> Unpin for Watched<W> {}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http_body_util::BodyExt as _;

    use super::*;

    #[derive(Clone, Default)]
    struct Seen(Arc<Mutex<Vec<String>>>);

    impl BodyWatch for Seen {
        fn part(&mut self, bytes: &[u8]) {
            self.0.lock().unwrap().push(String::from_utf8_lossy(bytes).into_owned());
        }

        fn end(&mut self) {
            self.0.lock().unwrap().push("end".to_owned());
        }
    }

    impl Seen {
        fn take(&self) -> Vec<String> {
            std::mem::take(&mut self.0.lock().unwrap())
        }
    }

    #[tokio::test]
    async fn a_complete_body_is_seen_at_once_and_one_that_is_written_as_it_passes() {
        let seen = Seen::default();
        let parts = Body::parts([Bytes::from("a"), Bytes::from("b")]);
        for (body, expected) in
            [(Body::empty(), &["end"][..]), (Body::full("x"), &["x", "end"]), (parts, &["a", "b", "end"])]
        {
            let _unread = body.watched(seen.clone());
            assert_eq!(seen.take(), expected);
        }
        let (sender, body) = Body::channel(4);
        let mut body = body.watched(seen.clone());
        sender.send("one".into()).await.unwrap();
        body.frame().await.unwrap().unwrap();
        assert_eq!(seen.take(), ["one"]);
        drop(sender);
        assert!(body.frame().await.is_none());
        assert_eq!(seen.take(), ["end"]);
    }

    #[tokio::test]
    async fn a_body_that_is_cut_off_has_no_end() {
        let seen = Seen::default();
        let (sender, body) = Body::channel(4);
        let mut body = body.watched(seen.clone());
        sender.abort(BodyError::Broken("gone".into())).await;
        assert!(body.frame().await.unwrap().is_err());
        assert_eq!(Arc::strong_count(&seen.0), 1, "it is dropped");
        let (_sender, body) = Body::channel(4);
        drop(body.watched(seen.clone()));
        assert_eq!((seen.take(), Arc::strong_count(&seen.0)), (Vec::new(), 1));
    }
}
