//! Holds the architecture: which room may use which, and no circles of files.
//!
//! A *room* is a crate of the workspace, or a folder (or lone file) of `analyze/src`. The table under
//! `## Arrows` of `ARCHITECTURE.md` says which rooms a room may use, and the code must use exactly those: for
//! a crate, `[dependencies]` of its `Cargo.toml`; for a folder, the paths of its files into its own crate.
//!
//! A file *uses* another one if a `use` or a path in it resolves to an item there. A re-export is followed to
//! the file that defines the item. `mod` declarations and code for tests do not count, and a method that
//! another file adds to a type is not seen.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    fs,
    path::{Path, PathBuf},
};

use syn::{
    Attribute, Ident, ImplItem, Item, ItemMod, ItemUse, Macro, UseTree,
    ext::IdentExt as _,
    parse::{ParseStream, Parser as _},
    visit::{self, Visit},
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The path of a module in its crate, or a path in the code: its segments.
type Segments = Vec<String>;

/// Which nodes each node uses.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// One module: a file or an inline one.
#[derive(Default)]
struct Module {
    /// The file, relative to the root of the repository.
    file: String,
    /// What `use` declarations name here, and the paths that they stand for.
    imports: BTreeMap<String, Segments>,
    /// The modules whose names are all imported.
    globs: Vec<Segments>,
    /// The names of the items that are defined here.
    items: BTreeSet<String>,
    /// All paths in the code, imports among them.
    paths: BTreeSet<Segments>,
}

/// The modules of one crate, without those for tests.
struct Modules {
    root: PathBuf,
    modules: BTreeMap<Segments, Module>,
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let is_cfg_test =
            || attribute.parse_args::<syn::Path>().is_ok_and(|condition| condition.is_ident("test"));
        attribute.path().is_ident("test") || attribute.path().is_ident("cfg") && is_cfg_test()
    })
}

/// Returns the name that an item defines, and its attributes.
fn name_of(item: &Item) -> (Option<&Ident>, &[Attribute]) {
    match item {
        Item::Const(item) => (Some(&item.ident), &item.attrs),
        Item::Enum(item) => (Some(&item.ident), &item.attrs),
        Item::Fn(item) => (Some(&item.sig.ident), &item.attrs),
        Item::Impl(item) => (None, &item.attrs),
        Item::Macro(item) => (item.ident.as_ref(), &item.attrs),
        Item::Mod(item) => (None, &item.attrs),
        Item::Static(item) => (Some(&item.ident), &item.attrs),
        Item::Struct(item) => (Some(&item.ident), &item.attrs),
        Item::Trait(item) => (Some(&item.ident), &item.attrs),
        Item::Type(item) => (Some(&item.ident), &item.attrs),
        Item::Union(item) => (Some(&item.ident), &item.attrs),
        Item::Use(item) => (None, &item.attrs),
        _ => (None, &[]),
    }
}

/// Reads one file and, as it meets them, the modules that the file declares.
struct Reader<'a> {
    modules: &'a mut Modules,
    /// The module that is being read.
    at: Segments,
    /// The folder of the files of that module's children.
    folder: PathBuf,
    error: Option<Box<dyn Error>>,
}

impl Reader<'_> {
    fn module(&mut self) -> &mut Module {
        self.modules.modules.entry(self.at.clone()).or_default()
    }

    fn import(&mut self, tree: &UseTree, mut prefix: Segments) {
        let (name, alias) = match tree {
            UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                return self.import(&path.tree, prefix);
            }
            UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.import(tree, prefix.clone()));
            }
            UseTree::Glob(_) => return self.module().globs.push(prefix),
            UseTree::Name(name) => (&name.ident, &name.ident),
            UseTree::Rename(rename) => (&rename.ident, &rename.rename),
        };
        let mut alias = alias.to_string();
        if name == "self" {
            alias = if alias == "self" { prefix.last().cloned().unwrap_or_default() } else { alias };
        } else {
            prefix.push(name.to_string());
        }
        self.module().imports.insert(alias, prefix.clone());
        self.module().paths.insert(prefix);
    }

    /// Reads the file of a module, and all that it declares.
    fn read(&mut self, file: &Path) -> Result<()> {
        let content = syn::parse_file(&fs::read_to_string(file)?)?;
        self.module().file = file.strip_prefix(&self.modules.root)?.display().to_string();
        content.items.iter().for_each(|item| self.visit_item(item));
        self.error.take().map_or(Ok(()), Err)
    }

    /// Reads a child module: the inline one, or that of `x.rs` or `x/mod.rs`.
    fn child(&mut self, item: &ItemMod) -> Result<()> {
        let name = item.ident.unraw().to_string();
        let (folder, file) = (self.folder.join(&name), self.module().file.clone());
        let outer = std::mem::replace(&mut self.folder, folder.clone());
        self.at.push(name);
        if let Some((_, items)) = &item.content {
            self.module().file = file;
            items.iter().for_each(|item| self.visit_item(item));
        } else {
            let alone = folder.with_extension("rs");
            self.read(&if alone.exists() { alone } else { folder.join("mod.rs") })?;
        }
        self.at.pop();
        self.folder = outer;
        Ok(())
    }

    /// Reads the modules that a macro declares: those of its words that are names of files in the module's folder.
    fn declared_by(&mut self, call: &Macro) {
        for path in paths_in.parse2(call.tokens.clone()).unwrap_or_default() {
            let [name] = path.as_slice() else { continue };
            if self.folder.join(name).with_extension("rs").exists() {
                let item: ItemMod = ItemMod {
                    attrs: Vec::new(),
                    vis: syn::Visibility::Inherited,
                    unsafety: None,
                    mod_token: Default::default(),
                    ident: Ident::new(name, proc_macro2::Span::call_site()),
                    content: None,
                    semi: Some(Default::default()),
                };
                self.visit_item_mod(&item);
            }
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let (name, attributes) = name_of(item);
        if is_test(attributes) {
            return;
        }
        if let Some(name) = name {
            self.module().items.insert(name.to_string());
        }
        if let Item::Macro(call) = item
            && call.ident.is_none()
        {
            self.declared_by(&call.mac);
        }
        visit::visit_item(self, item);
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        if !matches!(item, ImplItem::Fn(function) if is_test(&function.attrs)) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if let Err(error) = self.child(item) {
            self.error.get_or_insert(format!("module {}: {error}", item.ident).into());
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.import(&item.tree, Vec::new());
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments = path.segments.iter().map(|segment| segment.ident.to_string());
        self.module().paths.insert(segments.collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast Macro) {
        visit::visit_macro(self, item);
        let paths = paths_in.parse2(item.tokens.clone()).unwrap_or_default();
        self.module().paths.extend(paths);
    }
}

/// Finds the paths among the tokens of a macro call, which follow no grammar of their own.
fn paths_in(input: ParseStream<'_>) -> syn::Result<Vec<Segments>> {
    let mut found = Vec::new();
    while !input.is_empty() {
        if input.peek(Ident::peek_any) {
            let mut path = vec![input.call(Ident::parse_any)?.to_string()];
            while input.peek(syn::Token![::]) && input.peek3(Ident::peek_any) {
                input.parse::<syn::Token![::]>()?;
                path.push(input.call(Ident::parse_any)?.to_string());
            }
            found.push(path);
        } else if let Ok(group) = input.fork().parse::<proc_macro2::Group>() {
            input.parse::<proc_macro2::Group>()?;
            found.extend(paths_in.parse2(group.stream())?);
        } else {
            input.parse::<proc_macro2::TokenTree>()?;
        }
    }
    Ok(found)
}

impl Modules {
    /// Reads a crate from the file of its root module.
    fn read(root: &Path, file: &Path) -> Result<Self> {
        let mut modules = Self { root: root.to_owned(), modules: BTreeMap::new() };
        let folder = file.parent().unwrap_or(root).to_owned();
        Reader { modules: &mut modules, at: Vec::new(), folder, error: None }.read(file)?;
        Ok(modules)
    }

    /// Returns the module in which the item of a path is defined, and whether the path names that module
    /// itself; `None` if the path leads out of the crate or names a local item.
    fn resolve(&self, from: &[String], path: &[String], depth: usize) -> Option<(Segments, bool)> {
        let (first, rest) = path.split_first().filter(|_| depth < 16)?;
        let mut at = from.to_vec();
        let mut rest = rest;
        match first.as_str() {
            "crate" => at.clear(),
            "self" => {}
            "super" => {
                at.pop()?;
                while let Some(("super", after)) =
                    rest.split_first().map(|(name, after)| (name.as_str(), after))
                {
                    at.pop()?;
                    rest = after;
                }
            }
            name => {
                at.push(name.to_owned());
                if !self.modules.contains_key(&at) {
                    let import =
                        self.modules.get(from)?.imports.get(name).filter(|import| import[0] != name)?;
                    return self.resolve(from, &[import, rest].concat(), depth + 1);
                }
            }
        }
        while let Some((name, after)) = rest.split_first() {
            at.push(name.clone());
            if self.modules.contains_key(&at) {
                rest = after;
                continue;
            }
            at.pop();
            let module = self.modules.get(&at)?;
            if module.items.contains(name) {
                break;
            }
            if let Some(import) = module.imports.get(name) {
                let target = self.resolve(&at, &[import, after].concat(), depth + 1);
                return Some(target.unwrap_or((at, false)));
            }
            for glob in &module.globs {
                let path = [glob.as_slice(), rest].concat();
                if let Some((target, false)) = self.resolve(&at, &path, depth + 1)
                    && self.modules.get(&target).is_some_and(|module| module.items.contains(name))
                {
                    return Some((target, false));
                }
            }
            break;
        }
        Some((at, rest.is_empty()))
    }

    /// Returns which files each file uses.
    fn graph(&self) -> Graph {
        let mut graph = Graph::new();
        for (from, module) in &self.modules {
            let paths = module.paths.iter().filter_map(|path| self.resolve(from, path, 0));
            let items = paths.filter(|(_, is_module)| !is_module);
            let globs = module.globs.iter().filter_map(|path| self.resolve(from, path, 0));
            let files = items.chain(globs).filter_map(|(target, _)| self.modules.get(&target));
            let used = files.map(|target| target.file.clone()).filter(|file| *file != module.file);
            graph.entry(module.file.clone()).or_default().extend(used);
        }
        graph
    }

    /// Returns the folder that a file belongs to: its own if it has one, or else the one that it is in.
    fn folder(graph: &Graph, file: &str) -> String {
        let own = file.strip_suffix(".rs").unwrap_or(file);
        match graph.keys().any(|other| other.starts_with(&format!("{own}/"))) {
            true => own.to_owned(),
            false => file.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned(),
        }
    }
}

/// Returns the strongly connected components of more than one node, each sorted.
fn circles(graph: &Graph) -> BTreeSet<Vec<String>> {
    let reached = |start: &String| {
        let mut seen: BTreeSet<&String> = BTreeSet::new();
        let mut open: Vec<&String> = graph.get(start).into_iter().flatten().collect();
        while let Some(node) = open.pop() {
            if seen.insert(node) {
                open.extend(graph.get(node).into_iter().flatten());
            }
        }
        seen
    };
    let reached: BTreeMap<&String, _> = graph.keys().map(|node| (node, reached(node))).collect();
    let of = |node: &String| -> Vec<String> {
        let others =
            reached[node].iter().filter(|other| reached.get(*other).is_some_and(|back| back.contains(node)));
        others.map(|other| (*other).clone()).collect()
    };
    graph.keys().map(of).filter(|circle| circle.len() > 1).collect()
}

/// Returns the root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Reads the `Cargo.toml` of a folder.
fn manifest(folder: &Path) -> Result<toml::Table> {
    Ok(fs::read_to_string(folder.join("Cargo.toml"))?.parse()?)
}

/// Returns the folders of the workspace's crates, relative to its root.
fn members(root: &Path) -> Result<Vec<String>> {
    let manifest = manifest(root)?;
    let members = manifest["workspace"]["members"].as_array().ok_or("no list of members")?;
    Ok(members.iter().filter_map(|member| member.as_str().map(str::to_owned)).collect())
}

/// Returns the files in which the crates of a folder begin.
fn crate_roots(folder: &Path) -> Vec<PathBuf> {
    let source = folder.join("src");
    let binaries = fs::read_dir(source.join("bin")).into_iter().flatten().flatten().map(|entry| entry.path());
    let all = [source.join("lib.rs"), source.join("main.rs")].into_iter().chain(binaries);
    all.filter(|path| path.is_file()).collect()
}

/// Returns the room of a file of `analyze/src`; `None` for a file in which a crate begins.
fn room(file: &str) -> Option<String> {
    let name = file.strip_prefix("analyze/src/")?.split('/').next()?;
    (!["lib.rs", "main.rs"].contains(&name)).then(|| format!("analyze/src/{name}"))
}

/// Returns which rooms the code of each room uses.
fn used(root: &Path) -> Result<Graph> {
    let members = members(root)?;
    let mut names = BTreeMap::new();
    for member in &members {
        let manifest = manifest(&root.join(member))?;
        names.insert(manifest["package"]["name"].as_str().unwrap_or_default().to_owned(), member.clone());
    }
    let mut rooms = Graph::new();
    for member in &members {
        let manifest = manifest(&root.join(member))?;
        let used = manifest
            .get("dependencies")
            .and_then(toml::Value::as_table)
            .into_iter()
            .flat_map(|table| table.keys());
        rooms.insert(member.clone(), used.filter_map(|name| names.get(name).cloned()).collect());
    }
    for (file, targets) in Modules::read(root, &root.join("analyze/src/lib.rs"))?.graph() {
        let Some(from) = room(&file) else { continue };
        let others = targets.iter().filter_map(|target| room(target)).filter(|to| *to != from);
        let others: Vec<_> = others.collect();
        rooms.entry(from).or_default().extend(others);
    }
    Ok(rooms)
}

/// Reads the table under `## Arrows`.
fn allowed(text: &str) -> Graph {
    let section = text.split("\n## ").find(|section| section.starts_with("Arrows\n")).unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    let cells = rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.replace('`', "")).collect());
    cells
        .filter_map(|cells: Vec<String>| {
            let [room, others, ..] = cells.as_slice() else { return None };
            let others = others.split(',').map(|other| other.trim().trim_end_matches('/').to_owned());
            let others = others.filter(|other| !["", "-", "—", "nothing"].contains(&other.as_str()));
            Some((room.trim().trim_end_matches('/').to_owned(), others.collect()))
        })
        .collect()
}

#[test]
fn rooms_use_what_the_architecture_allows() -> Result<()> {
    let root = root();
    let used = used(&root)?;
    let allowed = allowed(&fs::read_to_string(root.join("ARCHITECTURE.md"))?);
    let mut errors = Vec::new();
    let none = BTreeSet::new();
    for room in used.keys().chain(allowed.keys()).collect::<BTreeSet<_>>() {
        let (used, allowed_here) = (used.get(room).unwrap_or(&none), allowed.get(room).unwrap_or(&none));
        if !allowed.contains_key(room) {
            errors.push(format!("`{room}` is not in the table"));
        }
        errors.extend(used.difference(allowed_here).map(|to| format!("`{room}` uses `{to}`: not allowed")));
        errors
            .extend(allowed_here.difference(used).map(|to| format!("`{room}` may use `{to}`: no code does")));
    }
    errors.extend(circles(&used).iter().map(|circle| format!("rooms use each other: {}", circle.join(", "))));
    assert!(errors.is_empty(), "ARCHITECTURE.md and the code differ:\n{}", errors.join("\n"));
    Ok(())
}

#[test]
fn files_use_each_other_in_one_direction() -> Result<()> {
    let root = root();
    let mut errors = Vec::new();
    for file in members(&root)?.iter().flat_map(|member| crate_roots(&root.join(member))) {
        let graph = Modules::read(&root, &file)?.graph();
        for circle in circles(&graph) {
            let folders: BTreeSet<_> = circle.iter().map(|file| Modules::folder(&graph, file)).collect();
            if circle.len() > 2 || folders.len() > 1 {
                errors.push(format!("{} files:", circle.len()));
                errors.extend(circle.iter().map(|file| {
                    let others = graph[file].iter().filter(|other| circle.contains(other));
                    format!("  {file} -> {}", others.cloned().collect::<Vec<_>>().join(", "))
                }));
            }
        }
    }
    assert!(errors.is_empty(), "circles of files:\n{}", errors.join("\n"));
    Ok(())
}
