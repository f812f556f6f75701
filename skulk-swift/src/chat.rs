//! How does a Swift task follow an answer? What is behind `ChatStream`, and JSON whose keys keep their order.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use skulk::ChatOptions;
use skulk::chat::{Json, Message};
use skulk_contract::chat::Conversation;
use skulk_contract::functions::write;
use skulk_contract::options::Spelling;

use crate::error::{Answer, read};
use crate::running::{Running, child};
use crate::work::RawCancel;

/// What is behind a `ChatStream`.
#[derive(uniffi::Object)]
pub struct RawChatStream(Running<skulk::ChatStream>);

/// Messages and options, as Swift wrote them.
pub(crate) fn conversation(given: &str) -> Answer<Conversation> {
    Ok(Conversation::read(given, Spelling::Camel)?)
}

impl RawChatStream {
    /// Has another thread read what Swift wrote, and begin to answer.
    pub(crate) fn start(
        given: String,
        cancel: Option<Arc<RawCancel>>,
        begin: impl FnOnce(&[Message], &ChatOptions) -> skulk::Result<skulk::ChatStream> + Send + 'static,
    ) -> Arc<Self> {
        let cancel = child(cancel);
        let own = cancel.clone();
        let begin = move || {
            let (messages, mut options) = conversation(&given)?.chat()?;
            options.generate.cancel = own;
            Ok(begin(&messages, &options)?)
        };
        Arc::new(Self(Running::start(cancel, begin)))
    }
}

#[uniffi::export]
impl RawChatStream {
    /// The prompt that the messages became, as JSON.
    pub async fn prompt(&self) -> Answer<String> {
        Ok(self.0.see(|stream| write(stream.prompt())).await??)
    }

    /// The answer as far as it was read, as the JSON of a message.
    pub async fn message(&self) -> Answer<String> {
        Ok(self.0.see(|stream| write(&stream.message()?)).await??)
    }

    /// The next event as JSON; none behind the last.
    pub async fn next(&self) -> Answer<Option<String>> {
        let event = self.0.wait(skulk::ChatStream::poll_event).await?.transpose()?;
        Ok(event.map(|event| write(&event)).transpose()?)
    }

    /// Runs to the end: the whole answer as JSON.
    pub async fn answer(&self) -> Answer<String> {
        Ok(write(&self.0.wait(skulk::ChatStream::poll_answer).await??)?)
    }

    /// Asks it to end.
    pub fn cancel(&self) {
        self.0.cancel();
    }

    /// Cancels what is still running and waits until it has ended; the session is free then.
    pub async fn close(&self) -> Answer<()> {
        self.0.cancel();
        let skip = |stream: &mut skulk::ChatStream, cx: &mut Context<'_>| {
            while ready!(stream.poll_event(cx)).is_some() {}
            Poll::Ready(())
        };
        self.0.wait(skip).await
    }
}

/// A value of JSON.
#[derive(uniffi::Enum)]
pub enum RawJson {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool {
        /// Which.
        value: bool,
    },
    /// A whole number.
    Int {
        /// Which.
        value: i64,
    },
    /// A larger one.
    Unsigned {
        /// Which.
        value: u64,
    },
    /// Another number.
    Number {
        /// Which.
        value: f64,
    },
    /// A text.
    Text {
        /// Which.
        value: String,
    },
    /// Values.
    List {
        /// In their order.
        values: Vec<RawJson>,
    },
    /// Values by name.
    Object {
        /// In their order.
        names: Vec<String>,
        /// As many.
        values: Vec<RawJson>,
    },
}

impl From<Json> for RawJson {
    fn from(json: Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(value) => Self::Bool { value },
            #[expect(clippy::cast_precision_loss, reason = "as readers of JSON do")]
            Json::Int(value) => match (i64::try_from(value), u64::try_from(value)) {
                (Ok(value), _) => Self::Int { value },
                (_, Ok(value)) => Self::Unsigned { value },
                _ => Self::Number { value: value as f64 },
            },
            Json::Float(value) => Self::Number { value },
            Json::String(value) => Self::Text { value },
            Json::Array(values) => Self::List { values: values.into_iter().map(Self::from).collect() },
            Json::Object(fields) => {
                let (names, values) =
                    fields.into_iter().map(|(name, value)| (name, Self::from(value))).unzip();
                Self::Object { names, values }
            }
        }
    }
}

/// What a text says in JSON.
#[uniffi::export]
pub fn raw_json(text: String) -> Answer<RawJson> {
    Ok(read::<Json>("json", &text)?.into())
}
