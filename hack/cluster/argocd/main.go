// One static binary that is Argo CD without its server, by the name it is called with. For tests only.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	controller "github.com/argoproj/argo-cd/v3/cmd/argocd-application-controller/commands"
	askpass "github.com/argoproj/argo-cd/v3/cmd/argocd-git-ask-pass/commands"
	repository "github.com/argoproj/argo-cd/v3/cmd/argocd-repo-server/commands"
	cli "github.com/argoproj/argo-cd/v3/cmd/argocd/commands"
)

func main() {
	commands := map[string]func() *cobra.Command{
		"argocd":                        cli.NewCommand,
		"argocd-application-controller": controller.NewCommand,
		"argocd-repo-server":            repository.NewCommand,
		"argocd-git-ask-pass":           askpass.NewCommand,
	}
	name := filepath.Base(os.Args[0])
	command, known := commands[name]
	if !known {
		fmt.Fprintf(os.Stderr, "argocd: called as %q; right would be argocd, argocd-repo-server, …\n", name)
		os.Exit(2)
	}
	if err := command().Execute(); err != nil {
		os.Exit(1)
	}
}
