"""Run the node agent: notice what no hook was called for, and repair it (docs/agent.md). Hooks and netcommon never import it."""
