"""Chat templates: where they are found, what they take, and how calls and questions are worded."""
