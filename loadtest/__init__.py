"""Load testing for any OpenAI-compatible server, over HTTP and WebSocket only.

The packages are stages: `workloads` says what is asked, `schedule` when, `client` asks and takes
the times, `measure` turns rows into numbers, `results` keeps them, `report` draws them. `peers`
starts several servers in turn and asks each the same.
"""
