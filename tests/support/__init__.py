"""What tests share: stand-ins, made-up results, and ways to run and to kill."""
