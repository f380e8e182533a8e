"""The node agent: notices what nobody called us for, and puts it right (docs/agent.md). Hooks and netcommon never import it."""
