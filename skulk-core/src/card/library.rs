//! Which cards are there, and where did they come from? Built-in ones, and folders of the user's over them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use super::folder::{File, Folder, Held};
use super::schema::ModelCard;
use crate::error::{Error, ErrorKind, Result};
use crate::weights::mmap::io_error;

/// Cards by their model's id. Later sources override earlier ones: the user's folders, in their order, the cards
/// that are compiled in. A file that is no card stops nothing: it is one of the [problems](CardLibrary::problems).
///
/// ```
/// use skulk::CardLibrary;
/// let library = CardLibrary::builtin();
/// let card = library.get("mlx-community/Qwen3-0.6B-4bit").ok_or("no such card")?;
/// assert_eq!((card.n_layers, card.family.as_str()), (28, "qwen"));
/// # Ok::<(), &str>(())
/// ```
#[derive(Debug, Default)]
pub struct CardLibrary {
    builtin: bool,
    folders: Vec<Folder>,
    cards: BTreeMap<String, Found>,
    problems: Vec<Error>,
}

/// A card in effect; those of files with their folder's place and path.
#[derive(Debug)]
struct Found {
    card: Arc<ModelCard>,
    file: Option<(usize, PathBuf)>,
}

impl CardLibrary {
    /// The cards that are compiled in.
    pub fn builtin() -> Self {
        let mut library = Self { builtin: true, ..Self::default() };
        library.merge();
        library
    }

    /// No cards at all, for libraries of folders alone.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Searches a folder of the user's, and those in it, for `.toml` and `.json` files. Its cards override all that
    /// are there; a folder that cannot be read is a problem.
    #[must_use]
    pub fn with_folder(mut self, path: impl Into<PathBuf>) -> Self {
        self.add_folder(path);
        self
    }

    /// As [`CardLibrary::with_folder`], in place.
    pub fn add_folder(&mut self, path: impl Into<PathBuf>) {
        self.folders.push(Folder::new(path.into()));
        self.reload();
    }

    /// The card of a model.
    pub fn get(&self, model_id: &str) -> Option<&ModelCard> {
        self.cards.get(model_id).map(|found| &*found.card)
    }

    /// The file of a model's card; none for those that are compiled in.
    pub fn file(&self, model_id: &str) -> Option<&Path> {
        let (_, path) = self.cards.get(model_id)?.file.as_ref()?;
        Some(path)
    }

    /// All cards, by their ids.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &ModelCard> {
        self.cards.values().map(|found| &*found.card)
    }

    /// Cards in effect.
    pub fn len(&self) -> usize {
        self.cards.len()
    }

    /// Whether there is no card.
    pub fn is_empty(&self) -> bool {
        self.cards.is_empty()
    }

    /// The user's folders, in their order.
    pub fn folders(&self) -> impl ExactSizeIterator<Item = &Path> {
        self.folders.iter().map(|folder| &*folder.path)
    }

    /// Why files are not among the cards: what cannot be read, is no card, or is a second card of one id in a folder,
    /// where the first by path is taken. Each names its file.
    pub fn problems(&self) -> &[Error] {
        &self.problems
    }

    /// Searches the folders again. Only files whose time or size changed are read. The card of a file that is gone
    /// or broken is gone, and an earlier source's may show again.
    pub fn reload(&mut self) {
        let mut before: Vec<Option<Error>> =
            std::mem::take(&mut self.problems).into_iter().map(Some).collect();
        for folder in &mut self.folders {
            folder.search(&mut before, &mut self.problems);
        }
        self.merge();
    }

    /// Writes a card into one of the library's folders: over the card of its id there, or as
    /// [`ModelCard::file_name`]. Tells the file.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] when the folder is none of the library's, the id cannot name a file, or the
    /// file of that name holds another model's card; otherwise as [`ModelCard::save`]. The library is as before then.
    pub fn save(&mut self, folder: impl AsRef<Path>, card: &ModelCard) -> Result<PathBuf> {
        let folder = folder.as_ref();
        // A file that came since is not to be overwritten unseen.
        self.reload();
        let Some(known) = self.folders.iter().find(|known| known.path == folder) else {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "expected one of the library's folders, found another",
            )
            .with("folder", folder.display())
            .with_hint("add the folder to the library first"));
        };
        let of_id = |file: &File| matches!(&file.held, Held::Card(held) if held.model_id == card.model_id);
        let path = match known.files.iter().find(|(_, file)| of_id(file)) {
            Some((path, _)) => path.clone(),
            None => known.path.join(card.file_name()?),
        };
        if let Some(File { held: Held::Card(other), .. }) = known.files.get(&path)
            && other.model_id != card.model_id
        {
            let message = format!("expected a file for this card, found the card of {}", other.model_id);
            return Err(Error::new(ErrorKind::InvalidArgument, message)
                .with("file", path.display())
                .with("model_id", &card.model_id)
                .with_hint("choose another id, or remove the other card"));
        }
        std::fs::create_dir_all(folder).map_err(|e| io_error(e, folder, "make"))?;
        card.save(&path)?;
        self.folders.iter_mut().for_each(|folder| folder.forget(&path));
        self.reload();
        Ok(path)
    }

    /// Deletes the file of a user's card, so that an earlier source's card of this id, where there is one, shows
    /// again. `false` when no file has such a card.
    ///
    /// # Errors
    /// [`ErrorKind::FileIo`] when the file cannot be deleted.
    pub fn remove(&mut self, model_id: &str) -> Result<bool> {
        let Some((_, path)) = self.cards.get(model_id).and_then(|found| found.file.clone()) else {
            return Ok(false);
        };
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(io_error(e, &path, "delete")),
            _ => self.reload(),
        }
        Ok(true)
    }

    /// Puts the sources over each other.
    fn merge(&mut self) {
        let builtin = if self.builtin { builtin() } else { &[] };
        let found =
            |card: &Arc<ModelCard>, file| (card.model_id.clone(), Found { card: Arc::clone(card), file });
        self.cards = builtin.iter().map(|card| found(card, None)).collect();
        for (index, folder) in self.folders.iter().enumerate() {
            for (path, file) in &folder.files {
                let Held::Card(card) = &file.held else { continue };
                match self.cards.get(&card.model_id) {
                    Some(Found { file: Some((place, first)), .. }) if *place == index => {
                        let message = format!("expected one card of {}, found a second", card.model_id);
                        let error = Error::new(ErrorKind::CardInvalid, message)
                            .with("file", path.display())
                            .with("first", first.display())
                            .with_hint("remove one of the two files");
                        self.problems.push(error);
                    }
                    _ => self.cards.extend([found(card, Some((index, path.clone())))]),
                }
            }
        }
    }
}

/// A card a line, made from `cards/` by its generator.
const BUILTIN: &str = include_str!("builtin.jsonl");

/// The cards that are compiled in; tests see to it that all are good.
fn builtin() -> &'static [Arc<ModelCard>] {
    static CARDS: OnceLock<Vec<Arc<ModelCard>>> = OnceLock::new();
    CARDS.get_or_init(|| {
        BUILTIN.lines().filter_map(|text| ModelCard::from_json(text).ok()).map(Arc::new).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::card::folder::DEEPEST;

    fn card(model_id: &str, n_layers: usize) -> String {
        ModelCard::new(model_id, 100, n_layers, 8).to_toml().unwrap()
    }

    fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    fn layers(library: &CardLibrary) -> Vec<(&str, usize)> {
        library.iter().map(|card| (card.model_id.as_str(), card.n_layers)).collect()
    }

    /// What a problem concerns: the name of its file.
    fn files(library: &CardLibrary) -> Vec<String> {
        let file = |error: &Error| {
            let (_, path) = error.context().iter().find(|(key, _)| *key == "file").unwrap();
            Path::new(path).file_name().unwrap().to_string_lossy().into_owned()
        };
        library.problems().iter().map(file).collect()
    }

    #[test]
    fn all_builtin_cards_are_good() {
        let library = CardLibrary::builtin();
        assert_eq!((library.len(), library.problems().len()), (BUILTIN.lines().count(), 0));
        assert!(library.len() >= 120);
        assert!(library.iter().all(|card| !card.is_custom));
        assert!(library.iter().zip(library.iter().skip(1)).all(|(a, b)| a.model_id < b.model_id));
        assert_eq!(library.file("google/gemma-3-270m"), None);
    }

    #[test]
    fn bad_files_are_reported_beside_the_good_ones() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        write(at, "b.toml", &card("b", 2));
        write(at, "deeper/a.json", &ModelCard::from_toml(&card("a", 1)).unwrap().to_json());
        write(at, "c.toml", "n_layers = 0");
        write(at, "d.json", "{");
        write(at, "z.toml", &card("b", 9));
        for ignored in [".hidden.toml", "README.md", "card.schema.json"] {
            write(at, ignored, "no card");
        }
        let library = CardLibrary::empty().with_folder(at);
        assert_eq!(layers(&library), [("a", 1), ("b", 2)]);
        assert_eq!(files(&library), ["c.toml", "d.json", "z.toml"]);
        assert!(library.problems().iter().all(|error| error.kind() == ErrorKind::CardInvalid));
        assert!(library.iter().all(|card| card.is_custom));
        assert_eq!(library.file("b"), Some(&*at.join("b.toml")));
    }

    #[test]
    fn later_sources_override_earlier_ones() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let id = "google/gemma-3-270m";
        write(first.path(), "one.toml", &card(id, 1));
        write(second.path(), "two.toml", &card(id, 2));
        let mut library = CardLibrary::builtin();
        let builtin = library.len();
        assert_eq!(library.get(id).unwrap().n_layers, 18);
        library.add_folder(first.path());
        assert_eq!(library.get(id).unwrap().n_layers, 1);
        library.add_folder(second.path());
        assert_eq!((library.get(id).unwrap().n_layers, library.len()), (2, builtin));
        assert!(library.get(id).unwrap().is_custom);

        assert!(library.remove(id).unwrap());
        assert_eq!(library.get(id).unwrap().n_layers, 1);
        assert!(library.remove(id).unwrap());
        assert_eq!(library.get(id).unwrap().n_layers, 18);
        assert!(!library.remove(id).unwrap());
        assert!(!library.remove("nobody/knows").unwrap());
        assert_eq!(library.folders().count(), 2);
    }

    #[test]
    fn reload_reads_what_changed() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        let (a, bad) = (write(at, "a.toml", &card("a", 1)), write(at, "bad.toml", "broken = "));
        let mut library = CardLibrary::empty().with_folder(at);
        let read = Arc::as_ptr(&library.cards["a"].card);
        library.reload();
        assert_eq!(Arc::as_ptr(&library.cards["a"].card), read);
        assert_eq!(files(&library), ["bad.toml"]);

        // Neither time nor size tells: taken as unchanged.
        let time = std::fs::metadata(&a).unwrap().modified().unwrap();
        std::fs::write(&a, card("a", 2)).unwrap();
        std::fs::File::options().write(true).open(&a).unwrap().set_modified(time).unwrap();
        library.reload();
        assert_eq!(layers(&library), [("a", 1)]);

        std::fs::write(&a, card("a", 10)).unwrap();
        std::fs::write(&bad, card("b", 3)).unwrap();
        write(at, "new/c.toml", &card("c", 4));
        library.reload();
        assert_eq!(layers(&library), [("a", 10), ("b", 3), ("c", 4)]);
        assert!(library.problems().is_empty());

        std::fs::write(&a, "broken = ").unwrap();
        std::fs::remove_file(&bad).unwrap();
        library.reload();
        library.reload();
        assert_eq!((layers(&library), files(&library)), (vec![("c", 4)], vec!["a.toml".to_owned()]));
    }

    #[test]
    fn saved_cards_are_there() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("made/when/needed");
        let mut library = CardLibrary::empty().with_folder(&at);
        assert_eq!(library.problems()[0].kind(), ErrorKind::FileNotFound);
        let mut own = ModelCard::from_toml(&card("acme/small", 1)).unwrap();
        let path = library.save(&at, &own).unwrap();
        assert_eq!(path, at.join("acme--small.toml"));
        assert!(library.problems().is_empty());
        for n_layers in 2..9 {
            own.n_layers = n_layers;
            library.save(&at, &own).unwrap();
            assert_eq!(layers(&library), [("acme/small", n_layers)]);
        }
        // A card's own file is kept, whatever its name.
        std::fs::rename(&path, at.join("mine.json")).unwrap();
        std::fs::write(at.join("mine.json"), own.to_json()).unwrap();
        assert_eq!(library.save(&at, &own).unwrap(), at.join("mine.json"));
        assert_eq!((library.len(), library.problems().len()), (1, 0));

        let refused = [
            (folder.path(), "acme/other"),
            (&at, "../up"),
            // The name of the file of another card.
            (&at, "a--b"),
        ];
        write(&at, "a--b.toml", &card("a/b", 5));
        for (folder, model_id) in refused {
            own.model_id = model_id.to_owned();
            assert_eq!(
                library.save(folder, &own).unwrap_err().kind(),
                ErrorKind::InvalidArgument,
                "{model_id}"
            );
        }
        assert_eq!(library.get("a/b").unwrap().n_layers, 5);
    }

    #[cfg(unix)]
    #[test]
    fn links_make_no_circles() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        write(at, "in/a.toml", &card("a", 1));
        std::os::unix::fs::symlink(at, at.join("in/back")).unwrap();
        std::os::unix::fs::symlink(at.join("nowhere"), at.join("gone.toml")).unwrap();
        let deep = format!("{}deep.toml", "d/".repeat(DEEPEST + 1));
        write(at, &deep, &card("deep", 1));
        let library = CardLibrary::empty().with_folder(at);
        assert_eq!(layers(&library), [("a", 1)]);
        assert_eq!(files(&library), ["gone.toml"]);
    }
}
