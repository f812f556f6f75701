//! Is the tokenizer that is written the tokenizer that was read?

use super::*;
use crate::tokenizer::Tokenizer;

const TEXTS: [&str; 12] = [
    "",
    " ",
    "Once upon a time",
    "  two  spaces \n\n and\ttabs ",
    "Grüße, 日本語 🦊🏽 \u{200d} fin",
    "<s>doubled?</s>",
    "<bos><start_of_turn>user\nHi<end_of_turn>\n",
    "<|eot_id|> [INST] <0x0A> ▁under",
    "e\u{301} \u{feff} \u{fffd} \u{1F468}\u{200d}\u{1F469}",
    "1234567890 3.14159 x=y+z;",
    "I'LL say: \"It's\" fine…",
    "a\u{0}b",
];

fn expect_equal(read: &Tokenizer, written: &Tokenizer) {
    assert_eq!(read.vocab_size(), written.vocab_size());
    assert_eq!((read.bos(), read.eos_ids()), (written.bos(), written.eos_ids()));
    for text in TEXTS {
        for add_special in [false, true] {
            let ids = read.encode(text, add_special).unwrap();
            assert_eq!(written.encode(text, add_special).unwrap(), ids, "{text:?}");
            for skip_special in [false, true] {
                assert_eq!(written.decode(&ids, skip_special), read.decode(&ids, skip_special), "{text:?}");
            }
        }
    }
    for id in (0..read.vocab_size() as u32).step_by(97).chain(0..300).map(TokenId) {
        assert_eq!(read.token_text(id), written.token_text(id));
        assert_eq!(read.is_special(id), written.is_special(id));
        assert_eq!(read.decode(&[id], false), written.decode(&[id], false));
    }
}

#[test]
fn written_tokenizers_are_those_that_were_read() {
    let folders = ["models/llama", "models/gemma3", "gguf/stories260K-q8_0.gguf"].map(fixture);
    for path in folders.into_iter().chain(gemma()) {
        let checkpoint = open(&path);
        let source = Source::open(&*checkpoint).unwrap();
        // Weights do not matter.
        let small = open(&fixture("models/stories260K"));
        let written = Written::new(&Source::open(&*small).unwrap(), false).with_tokenizer(&source);
        std::fs::write(written.folder.path().join("config.json"), source.config().to_string()).unwrap();
        let metadata = HfMetadata::read(written.folder.path()).unwrap();
        let template =
            metadata.tokenizer_config.as_ref().and_then(|config| config.get("chat_template").cloned());
        let written = Written { metadata, ..written };
        let [read, again] =
            [&*checkpoint, &written].map(|checkpoint| Tokenizer::from_checkpoint(checkpoint).unwrap());
        expect_equal(&read, &again);
        if let Metadata::Gguf(metadata) = checkpoint.metadata() {
            let expected = metadata.opt_str("tokenizer.chat_template").unwrap();
            assert_eq!(template.as_ref().and_then(Value::as_str), expected);
        }
    }
}

#[test]
fn other_programs_begin_texts_as_this_library_does() {
    let checkpoint = open(&fixture("gguf/stories260K-q8_0.gguf"));
    let source = Source::open(&*checkpoint).unwrap();
    let files = source.tokenizer_files(None).unwrap();
    let FileContent::Text(json) = &files[0].content else { panic!("expected text") };
    let written = tokenizers::Tokenizer::from_bytes(json).unwrap();
    let theirs = tokenizers::Tokenizer::from_file(fixture("models/stories260K/tokenizer.json")).unwrap();
    for text in TEXTS {
        let [written, theirs] = [&written, &theirs].map(|tokenizer| tokenizer.encode(text, true).unwrap());
        assert_eq!(written.get_ids(), theirs.get_ids(), "{text:?}");
        assert_eq!(written.get_ids()[0], 1);
    }
    let ids = theirs.encode(TEXTS[4], true).unwrap();
    let [ours, theirs] = [&written, &theirs].map(|tokenizer| tokenizer.decode(ids.get_ids(), true).unwrap());
    assert_eq!(ours, theirs);
}
