"""Why: what a solution means, in numbers and sentences, for status, plan and explain alike. Pure; decides nothing."""
