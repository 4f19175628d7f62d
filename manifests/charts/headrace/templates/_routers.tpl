{{/* The routers of this release's cluster, merged with routerDefaults and checked: a YAML object with the list `routers`. */}}
{{- define "headrace.routers" -}}
{{- $routers := list -}}
{{- $seen := dict -}}
{{- range $index, $given := .Values.routers -}}
{{- $router := mergeOverwrite (deepCopy $.Values.routerDefaults) (deepCopy $given) -}}
{{- if or (not $router.cluster) (eq $router.cluster $.Values.clusterName) -}}
{{- $at := printf "routers[%d]" $index -}}
{{- if hasKey $seen $router.frontend -}}
{{- fail (printf "%s.frontend: %q stands twice; right would be one entry a front-end, with all its policies" $at $router.frontend) -}}
{{- end -}}
{{- $_ := set $seen $router.frontend true -}}
{{- include "headrace.checkRouter" (dict "root" $ "router" $router "at" $at) -}}
{{- $routers = append $routers $router -}}
{{- end -}}
{{- end -}}
{{- dict "routers" $routers | toYaml -}}
{{- end -}}

{{/* Tables of a router, each once: a YAML object with the list `tables` of NAMESPACE/CONFIGMAP. */}}
{{- define "headrace.tables" -}}
{{- $router := . -}}
{{- $tables := list -}}
{{- range .policies -}}
{{- $parts := splitList "/" . -}}
{{- $tables = append $tables (printf "%s/headrace-%s-%s" (index $parts 0) (index $parts 1) $router.frontend) -}}
{{- end -}}
{{- dict "tables" (concat $tables .configMaps | uniq) | toYaml -}}
{{- end -}}

{{/* What a router mounts of keys and certificates: a YAML object with the list `mounts` of {volume, path, kind, from, optional}. */}}
{{- define "headrace.accessMounts" -}}
{{- $mounts := list -}}
{{- with .tls.secret -}}
{{- $mounts = append $mounts (dict "volume" "tls" "path" "/etc/headrace/tls" "kind" "secret" "from" . "optional" false) -}}
{{- end -}}
{{- with .tls.clientCA.configMap -}}
{{- $mounts = append $mounts (dict "volume" "client-ca" "path" "/etc/headrace/client-ca" "kind" "configMap" "from" . "optional" false) -}}
{{- end -}}
{{- with .apiKeys.secret -}}
{{- $mounts = append $mounts (dict "volume" "api-keys" "path" "/etc/headrace/api-keys" "kind" "secret" "from" . "optional" false) -}}
{{- end -}}
{{- /* One engine's key that isn't there must not keep all of a front-end's pods from starting. */ -}}
{{- range $index, $one := .credentials.secrets -}}
{{- $path := printf "/etc/headrace/credentials/%s/secrets/%s" .namespace .name -}}
{{- $mounts = append $mounts (dict "volume" (printf "engine-secret-%d" $index) "path" $path "kind" "secret" "from" (.from | default .name) "optional" true) -}}
{{- end -}}
{{- range $index, $one := .credentials.configMaps -}}
{{- $path := printf "/etc/headrace/credentials/%s/configmaps/%s" .namespace .name -}}
{{- $mounts = append $mounts (dict "volume" (printf "engine-configmap-%d" $index) "path" $path "kind" "configMap" "from" (.from | default .name) "optional" true) -}}
{{- end -}}
{{- dict "mounts" $mounts | toYaml -}}
{{- end -}}

{{/* Values that are right one by one and impossible together, or that a schema could only refuse in riddles. */}}
{{- define "headrace.checkRouter" -}}
{{- $at := .at -}}
{{- $router := .router -}}
{{- $namespace := .root.Release.Namespace -}}
{{- $service := printf "%s-admin" (include "headrace.routerName" .) -}}
{{- if gt (len $service) 63 -}}
{{- fail (printf "%s.frontend: %q makes the name %s, of %d letters; right would be at most 63: choose a shorter fullnameOverride" $at $router.frontend $service (len $service)) -}}
{{- end -}}
{{- if not (concat $router.policies $router.configMaps) -}}
{{- fail (printf "%s: neither policies nor configMaps; right would be policies: [NAMESPACE/POLICY]" $at) -}}
{{- end -}}
{{- range $field, $names := dict "policies" $router.policies "configMaps" $router.configMaps -}}
{{- range $name := $names -}}
{{- if not (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-.a-z0-9]*[a-z0-9])?$" $name) -}}
{{- fail (printf "%s.%s: %q; right would be NAMESPACE/NAME, such as inference/chat" $at $field $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if not $router.apiAccess -}}
{{- range (include "headrace.tables" $router | fromYaml).tables -}}
{{- if not (hasPrefix (printf "%s/" $namespace) .) -}}
{{- fail (printf "%s.apiAccess: false, but the table %s can't be mounted: pods mount ConfigMaps of their own namespace, %s; right would be apiAccess: true, or routers installed there" $at . $namespace) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $router.tls.clientCA.configMap (not $router.tls.secret) -}}
{{- fail (printf "%s.tls: clientCA without secret; right would be the Secret of the router's own certificate, too" $at) -}}
{{- end -}}
{{- range $kind, $list := $router.credentials -}}
{{- $seen := dict -}}
{{- range $index, $one := $list -}}
{{- $name := printf "%s/%s" $one.namespace $one.name -}}
{{- if hasKey $seen $name -}}
{{- fail (printf "%s.credentials.%s[%d]: %s stands twice" $at $kind $index $name) -}}
{{- end -}}
{{- $_ := set $seen $name true -}}
{{- end -}}
{{- end -}}
{{- if and $router.autoscaling.enabled (gt (int $router.autoscaling.minReplicas) (int $router.autoscaling.maxReplicas)) -}}
{{- fail (printf "%s.autoscaling: minReplicas %d is more than maxReplicas %d" $at (int $router.autoscaling.minReplicas) (int $router.autoscaling.maxReplicas)) -}}
{{- end -}}
{{- end -}}
