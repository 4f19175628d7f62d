{{/* Names and labels of objects. */}}

{{- define "headrace.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains "headrace" .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-headrace" .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "headrace.operatorName" -}}
{{- printf "%s-operator" (include "headrace.fullname" .) -}}
{{- end -}}

{{/* Of a router: dict "root" $ "router" its merged values. */}}
{{- define "headrace.routerName" -}}
{{- printf "%s-router-%s" (include "headrace.fullname" .root) .router.frontend -}}
{{- end -}}

{{/* What tells an object's pods from others: dict "root" $ "component" operator|router ["router" its merged values]. */}}
{{- define "headrace.selector" -}}
app.kubernetes.io/name: headrace
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- with .router }}
headrace.dev/frontend: {{ .frontend }}
{{- end }}
{{- end -}}

{{- define "headrace.labels" -}}
{{ include "headrace.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* dict "root" $ "image" {name, tag, digest} */}}
{{- define "headrace.image" -}}
{{- $repository := printf "%s/%s" (trimSuffix "/" .root.Values.image.registry) .image.name -}}
{{- if .image.digest -}}
{{- printf "%s@%s" $repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (.image.tag | default .root.Values.image.tag | default .root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/* dict "name" the objects' "account" serviceAccount */}}
{{- define "headrace.serviceAccountName" -}}
{{- .account.name | default .name -}}
{{- end -}}
