"""Sets up a boot host: facts about network and host, the files and services, and a check from outside."""
