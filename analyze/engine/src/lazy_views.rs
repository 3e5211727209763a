//! Views that are planned when they are first used: a query uses a few of them, and planning all of them
//! takes longer than most queries.

use std::{collections::HashMap, fmt, sync::Arc};

use async_trait::async_trait;
use datafusion::{
    catalog::{SchemaProvider, TableProvider},
    datasource::ViewTable,
    error::{DataFusionError, Result},
    execution::SessionState,
    prelude::SessionContext,
};

/// A schema provider with the tables of another schema and views beside them.
pub struct Views {
    tables: Arc<dyn SchemaProvider>,
    /// The SQL text of each view, by the view's name.
    queries: HashMap<String, String>,
    /// Returns the session's state, or `None` if the session has ended.
    state: Box<dyn Fn() -> Option<SessionState> + Send + Sync>,
}

impl Views {
    /// Creates a schema that adds views, given as SQL text by name, to the tables of a schema of the session.
    pub fn new(
        context: &SessionContext,
        tables: Arc<dyn SchemaProvider>,
        queries: HashMap<String, String>,
    ) -> Self {
        // The session owns the schema, so the schema holds only a weak reference to the session.
        let session = context.state_weak_ref();
        Self { tables, queries, state: Box::new(move || Some(session.upgrade()?.read().clone())) }
    }
}

impl fmt::Debug for Views {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Views").field("tables", &self.tables).field("queries", &self.queries).finish()
    }
}

#[async_trait]
impl SchemaProvider for Views {
    fn table_names(&self) -> Vec<String> {
        let mut names = self.tables.table_names();
        names.extend(self.queries.keys().filter(|name| !self.tables.table_exist(name)).cloned());
        names
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        if let Some(table) = self.tables.table(name).await? {
            return Ok(Some(table));
        }
        let (Some(query), Some(state)) = (self.queries.get(name), (self.state)()) else { return Ok(None) };
        let plan = state.create_logical_plan(query).await?;
        let view: Arc<dyn TableProvider> = Arc::new(ViewTable::new(plan, Some(query.clone())));
        // If two queries plan the view at the same time, the second registration fails; both plans are equal.
        drop(self.tables.register_table(name.to_owned(), Arc::clone(&view)));
        Ok(Some(view))
    }

    fn register_table(
        &self,
        name: String,
        table: Arc<dyn TableProvider>,
    ) -> Result<Option<Arc<dyn TableProvider>>> {
        self.tables.register_table(name, table)
    }

    fn deregister_table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        self.tables.deregister_table(name)
    }

    fn table_exist(&self, name: &str) -> bool {
        self.tables.table_exist(name) || self.queries.contains_key(name)
    }
}
