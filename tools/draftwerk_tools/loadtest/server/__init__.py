"""A server seen from outside: started, waited for and stopped; and what its metrics page holds."""
