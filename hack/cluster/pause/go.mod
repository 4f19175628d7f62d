module headrace.dev/testcluster/pause

go 1.24.0
