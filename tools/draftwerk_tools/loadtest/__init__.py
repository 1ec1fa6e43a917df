"""Load testing for any OpenAI-compatible server, over HTTP and WebSocket only.

The packages are stages: `workloads` makes the requests, `schedule` their times, `client` sends them
and takes the times, `measure` turns rows into numbers, `results` keeps them, `report` draws them.
`peers` starts several servers in turn and sends each the same requests.
"""
