//! What if a part of a model is lost, as with the machine that had it? Its conversations go on where another placement
//! computes what is missing.

use std::sync::Arc;

use super::channel::BACKLOG;
use super::model::{Inner, Model};
use super::session::Session;
use crate::cancel::CancelToken;
use crate::error::{Error, ErrorKind, Result};
use crate::generate::Generation;
use crate::plan::{Placement, admit_max_tokens};

impl Model {
    /// The same checkpoint, loaded with the same options but for the placement: what this one computed on machines that
    /// are lost is elsewhere there. Both exist while both are used.
    ///
    /// # Errors
    /// As [`Model::open`].
    pub fn replan(&self, placement: Placement) -> Result<Model> {
        self.replan_with(placement, CancelToken::new())
    }

    /// The same, which ends within one layer when the token is cancelled.
    ///
    /// # Errors
    /// As [`replan`](Self::replan); [`ErrorKind::Cancelled`].
    pub fn replan_with(&self, placement: Placement, cancel: CancelToken) -> Result<Model> {
        let Inner { path, options, placement: own, .. } = &*self.inner;
        let mut options = options.clone();
        // As they are kept here, where nobody says otherwise and a plan has reserved memory for that.
        let fits =
            placement.context_tokens().is_none() || own.kv().block_bytes() <= placement.kv().block_bytes();
        if options.kv.is_none() && placement.kept().is_none() && fits {
            options.kv = Some(own.kv());
        }
        (options.stages, options.engine_name, options.placement) = (1, None, Some(placement));
        options.cancel = cancel;
        #[cfg(feature = "net")]
        options.ffn_at.clear();
        Model::open(path, &options)
    }
}

impl Session {
    /// The model that it is a conversation with.
    pub fn model(&self) -> Model {
        Model { inner: Arc::clone(&self.shared.model) }
    }

    /// This conversation with its model placed otherwise, see [`Model::replan`]: all its tokens, and the generation that
    /// an error cut off, which [`resume`](Self::resume) goes on with. Keys and values are computed again when it does.
    ///
    /// ```
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/models/stories260K");
    /// # use skulk::{GenerateOptions, LoadOptions, Model, Placement, Prompt};
    /// let model = Model::open(path, &LoadOptions::default())?;
    /// let session = model.session()?;
    /// session.generate("Once upon a time", GenerateOptions::default().max_tokens(8))?.output()?;
    /// let session = session.recover(Placement::by_counts([("cpu", 2), ("cpu", 3)])?)?;
    /// assert_eq!(session.model().stages().len(), 2);
    /// session.generate(Prompt::Append(" Then".into()), GenerateOptions::default().max_tokens(8))?.output()?;
    /// # Ok::<(), skulk::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Model::replan`] and [`recover_in`](Self::recover_in).
    pub fn recover(&self, placement: Placement) -> Result<Session> {
        self.recover_with(placement, CancelToken::new())
    }

    /// The same, which ends within one layer of loading when the token is cancelled.
    ///
    /// # Errors
    /// As [`recover`](Self::recover); [`ErrorKind::Cancelled`].
    pub fn recover_with(&self, placement: Placement, cancel: CancelToken) -> Result<Session> {
        self.recover_in(&self.model().replan_with(placement, cancel)?)
    }

    /// The same in a model that is loaded already, which several conversations may share.
    ///
    /// # Errors
    /// [`ErrorKind::SessionMismatch`] for another model; [`ErrorKind::ContextOverflow`] where the conversation is longer
    /// than its context; [`ErrorKind::SessionBusy`] while a generation runs.
    pub fn recover_in(&self, model: &Model) -> Result<Session> {
        let turn = self.turn()?;
        let (found, expected) = (model.inner.fingerprint.get()?, self.shared.model.fingerprint.get()?);
        if found != expected {
            let message = format!("expected the conversation's model {expected}, found {found}");
            return Err(Error::new(ErrorKind::SessionMismatch, message)
                .with_hint("load the checkpoint that the conversation is with"));
        }
        let mut state = turn.shared.state();
        model.expect_room(state.history.len())?;
        let session = Session::open(Arc::clone(&model.inner));
        {
            let mut to = session.shared.state();
            to.history.clone_from(&state.history);
            to.interrupted = state.interrupted.take();
        }
        Ok(session)
    }

    /// Goes on with the generation that an error of a [retry](Error::retry) after replanning cut off, as that of a lost
    /// machine: with the same options, from the state that it was in, so that both texts together are the one that it
    /// would have generated. Here, where another try may do, or after [`recover`](Self::recover).
    ///
    /// Its events follow those that were given before. What usage counts is of both.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] when none was cut off, or the session was changed since;
    /// [`ErrorKind::ContextOverflow`] when what is left does not fit; [`ErrorKind::SessionBusy`] while a generation runs.
    pub fn resume(&self) -> Result<Generation> {
        self.go_on(None)
    }

    /// The same, stopped by this token and no more by that of the generation's options, which may be cancelled by now.
    ///
    /// # Errors
    /// As [`resume`](Self::resume).
    pub fn resume_with(&self, cancel: CancelToken) -> Result<Generation> {
        self.go_on(Some(cancel))
    }

    fn go_on(&self, cancel: Option<CancelToken>) -> Result<Generation> {
        let turn = self.turn()?;
        let (writing, tokens) = {
            let mut state = turn.shared.state();
            let Some(mut writing) = state.interrupted.take() else {
                return Err(Error::new(
                    ErrorKind::InvalidArgument,
                    "expected a generation that an error cut off, found none",
                )
                .with_hint("begin a generation from the session's tokens"));
            };
            let context = self.shared.model.context;
            let left = Some(writing.tokens_left());
            if let Err(error) = admit_max_tokens(state.history.len(), left, context, Some(context as u64)) {
                state.interrupted = Some(writing);
                return Err(error);
            }
            writing.drafted_by(self.shared.model.second.as_ref());
            if let Some(cancel) = cancel {
                writing.stop_with(cancel);
            }
            (writing, state.history.clone())
        };
        Ok(Generation::run(turn, tokens, writing, BACKLOG))
    }
}
