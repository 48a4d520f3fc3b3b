# The goals with what each does: rules `goals: …  ## what it does` below headings `##@ HEADING`; `##+` marks a rare one.
#
#     awk -f make/help.awk FILES                      what `make help` prints
#     awk -v show=all -f make/help.awk FILES          the rare ones too
#     awk -v show=goals -f make/help.awk FILES        the names of all goals
#     awk -v show=variables -f make/help.awk FILES    GOAL:VARIABLE for each variable that the line of a goal names

BEGIN { FS = ":.*##[+]? "; width = 22 }
/^##@/ { heading = substr($0, 5) }
/^[a-z0-9_.-]+( [a-z0-9_.-]+)*:.*##[+]? / {
    goals = $1
    sub(/:.*/, "", goals)
    if (show == "goals") print goals
    else if (show == "variables") name_variables()
    else if (show == "all" || /:.*## /) print_goals()
}

function name_variables(    count, list, i, rest) {
    count = split(goals, list, " ")
    for (rest = $2; match(rest, /[A-Z][A-Z0-9_]*=/); rest = substr(rest, RSTART + RLENGTH))
        for (i = 1; i <= count; i++) print list[i] ":" substr(rest, RSTART, RLENGTH - 1)
}

function print_goals(    at) {
    if (heading) print "\n" heading
    heading = ""
    while (length(goals) > width) { # the goals that fit get a line of their own
        at = match(substr(goals, 1, width), / [^ ]*$/)
        print "  " substr(goals, 1, at - 1)
        goals = substr(goals, at + 1)
    }
    printf "  %-*s %s\n", width, goals, $2
}
