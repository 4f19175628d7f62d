{{/* What all pods have in common. */}}

{{- define "headrace.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "headrace.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* Where pods go: dict "root" $ "component" … "values" the operator's or router's ["router" …]. */}}
{{- define "headrace.placement" -}}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
{{ toYaml . }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
{{- if .values.topologySpreadConstraints }}
{{ toYaml .values.topologySpreadConstraints }}
{{- else }}
{{- $selector := include "headrace.selector" . }}
{{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- $selector | nindent 6 }}
  matchLabelKeys: [pod-template-hash]
{{- end }}
{{- end }}
{{- end -}}

{{/* Secrets as files: a list of names. */}}
{{- define "headrace.secretMounts" -}}
{{- range . }}
- name: secret-{{ . }}
  mountPath: /var/run/secrets/headrace/{{ . }}
  readOnly: true
{{- end }}
{{- end -}}

{{- define "headrace.secretVolumes" -}}
{{- range . }}
- name: secret-{{ . }}
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- end -}}
