"""When it is asked: arrival times and the plan of a run, drawn before anything is sent."""
