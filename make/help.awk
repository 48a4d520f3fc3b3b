# Prints what `make help` says: a heading for each `##@ HEADING`, and each rule `goals: …  ## what it does`.

BEGIN { FS = ":.*## "; width = 22 }
/^##@/ { print "\n" substr($0, 5) }
/^[a-z0-9-]+( [a-z0-9-]+)*:.*## / {
    goals = $1
    sub(/:.*/, "", goals)
    while (length(goals) > width) { # the goals that fit stand on a line of their own
        at = match(substr(goals, 1, width), / [^ ]*$/)
        print "  " substr(goals, 1, at - 1)
        goals = substr(goals, at + 1)
    }
    printf "  %-*s %s\n", width, goals, $2
}
